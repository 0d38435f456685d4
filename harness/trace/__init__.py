"""Traces of one script under two PyTorch versions: where they diverge, and whether that is why the result changed.

`runs` starts the script in both environments, and `model` reads what `harness/tracer` recorded. `align` matches two
traces, `diverge` compares them, and `results` compares what the script came to; these are pure. `substitute` lets one
version run with the other's outputs, `judge` replays operators, and `trace` does all of it, for a `TraceSummary`.
"""
