"""List the devices whose published figures are known, or show one with the source of each figure."""

from __future__ import annotations

import argparse
import dataclasses

from jaxprof.cli.output import add_json, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a device (v5p, h100) or its JAX device_kind ('TPU v5')"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from jaxprof.cli.devices import device_rows, listing_row
    from jaxprof.hardware.book import find_device, known_devices

    if arguments.name is None:
        if arguments.json:
            print_json({"devices": [dataclasses.asdict(spec) for spec in known_devices()]})
        else:
            print_table(
                ("name", "bf16 TFLOP/s", "HBM GB/s", "HBM GiB", "JAX calls it"), map(listing_row, known_devices())
            )
        return 0
    spec = find_device(arguments.name)
    if arguments.json:
        print_json(dataclasses.asdict(spec))
    else:
        print_table(("figure of one device", "value", "source"), device_rows(spec))
    return 0
