"""The error that ends a row or the run with a message for people."""


class BenchError(Exception):
    """Something that the person who runs the benchmark has to know; its text is the message."""
