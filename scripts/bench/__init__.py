"""The benchmark of the gateway beside other servers; `scripts/bench-http --help` describes it."""
