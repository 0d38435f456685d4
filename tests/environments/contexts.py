"""A context whose environments are prepared and whose kernels are built, as experiments get it from the runner."""

from __future__ import annotations

from pathlib import Path

from harness.isolate.choose import make_executor
from harness.progress import Display
from harness.run.context import Context
from harness.run.environments import prepare_and_build
from harness.run.folders import new_run
from harness.run.prepare import Options, make_plan
from harness.schema.run_records import Selection
from harness.tools import cache_folder


def built_context(project: Path) -> Context:
    options = Options(matrix_path=project / "matrix.yaml", command=("test",), executor="venv")
    prepared = make_plan(options, Selection(), write_pins=True)
    cache = cache_folder()
    context = Context(
        root=options.root,
        cache=cache,
        matrix=prepared.matrix,
        plan=prepared.plan,
        run=new_run(options.root, prepared.plan.digest),
        executor=make_executor(prepared.choice, prepared.matrix.limits, prepared.plan, options.root, cache),
        sources=prepared.sources,
    )
    with Display(len(prepared.plan.builds)) as display:
        prepare_and_build(context, display)
    return context
