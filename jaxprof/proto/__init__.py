"""Protobuf messages that jaxprof reads and writes, built at run time from short field tables."""
