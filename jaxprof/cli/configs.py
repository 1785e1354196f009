"""List the presets, or print one as TOML with everything that it sets, defaults included."""

from __future__ import annotations

import argparse

from jaxprof.cli.output import add_json, print_json, print_table
from jaxprof.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="a preset or a .toml file")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="what to change in it (of a run)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from jaxprof.config.presets import model_presets

    if arguments.name is None:
        return _list(as_json=arguments.json)
    model = next((preset for preset in model_presets() if preset.name == arguments.name), None)
    if model is None:
        return _print_run(arguments.name, arguments.overrides, as_json=arguments.json)
    if arguments.overrides:
        raise UserError(f"{model.name} is a model; overrides are for runs, as in {model.name}-train")
    return _print_model(model.name, as_json=arguments.json)


def _list(*, as_json: bool) -> int:
    from jaxprof.config.presets import model_presets, run_presets

    presets = (*run_presets(), *model_presets())
    if as_json:
        rows = [{"name": p.name, "kind": p.kind, "description": p.description, "path": str(p.path)} for p in presets]
        print_json({"presets": rows})
    else:
        print_table(("name", "kind", "description"), ((p.name, p.kind, p.description) for p in presets))
    return 0


def _print_run(name: str, overrides: list[str], *, as_json: bool) -> int:
    from jaxprof.config.load import load_run, to_dict, to_toml

    config = load_run(name, overrides)
    if as_json:
        print_json(to_dict(config))
    else:
        print(to_toml(config), end="")
    return 0


def _print_model(name: str, *, as_json: bool) -> int:
    import dataclasses

    from jaxprof.config.load import load_model
    from jaxprof.config.values import show, show_key

    content = dataclasses.asdict(load_model(name))
    if as_json:
        print_json(content)
    else:
        print("\n".join(f"{show_key(key)} = {show(value)}" for key, value in content.items()))
    return 0
