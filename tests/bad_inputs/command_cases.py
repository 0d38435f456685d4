"""Mistakes on the command line. The project holds matrix.yaml, mine.cpp and a finished run, `done`."""

from __future__ import annotations

from harness.typed import BY_NOX
from tests.bad_inputs.case import MATRIX, case

TUNED = MATRIX.replace("[mine.cpp]}", "[mine.cpp]}\n    tunables: {BLOCK: 1}\n    search: {BLOCK: [1, 2]}")

COMMAND_LINE = [
    # the words
    case("a command misspelt", "matrx", "matrx", "did you mean matrix?"),
    case("a command that there is not", "benchmark", "benchmark", "kernel-matrix --help"),
    case("help as a command", "help", "--help"),
    case("an option before the command", "--quick matrix", "--quick", "matrix --quick|after the command"),
    case("an option misspelt", "matrix --kernal mine", "--kernal", "did you mean --kernel?"),
    case("an option that there is not", "matrix --nonsense", "--nonsense", "kernel-matrix matrix --help"),
    case("an option of another command", "check --quick", "--quick", "kernel-matrix check --help"),
    case("an option with one dash", "matrix -quick", "-quick", "did you mean --quick?"),
    case("an option with a long dash", "matrix \u2013quick", "\u2013quick", "did you mean --quick?"),
    case("an underscore for a dash", "matrix --fail_on correctness", "--fail_on", "did you mean --fail-on?"),
    case("an option without its value", "matrix --kernel", "--kernel", "value|argument|NAME"),
    case("a word too many", "matrix mine", "mine", "--kernel mine|matrix --help"),
    case("an option twice", "matrix --launches 3 --launches 5", "--launches", "twice"),
    case("no value at all", "matrix --kernel= --list", "--kernel", "''|empty|name"),
    # matrix
    case("a kernel that is not there", "matrix --list --kernel nope", "nope", "mine"),
    case("a kernel misspelt", "matrix --list --kernel mnie", "mnie", "did you mean mine?"),
    case("a workload misspelt", "matrix --list --workload smal", "smal", "did you mean small"),
    case("a device that there is not", "matrix --device tpu", "--device", "tpu", "cpu, cuda"),
    case("a device called gpu", "matrix --device gpu", "--device", "gpu", "did you mean cuda?"),
    case("no launches", "matrix --launches 0", "--launches", "at least 1"),
    case("a word for launches", "matrix --launches ten", "--launches", "ten", "number"),
    case("a fraction of launches", "matrix --launches 2.5", "--launches", "2.5", "number"),
    case("negative trials", "matrix --trials -3", "--trials", "at least 1"),
    case("more launches than a run may have", "matrix --list --launches 99999999", "--launches", "1000"),
    case("an executor misspelt", "matrix --executor dokcer", "--executor", "dokcer", "did you mean docker?"),
    case("an executor without its bundle", "matrix --list --executor bundle", "--bundle"),
    case("a bundle that is not there", "matrix --list --bundle nowhere", "nowhere", "bundle"),
    case("a bundle and another executor", "matrix --list --executor venv --bundle .", "--executor venv", "bundle"),
    case("a regression misspelt", "matrix --fail-on correctnes", "--fail-on", "did you mean correctness?"),
    case("a slow-down of no size", "matrix --fail-on latency --detect 0", "--detect", "above 0"),
    case("a slow-down that is a word", "matrix --fail-on latency --detect much", "--detect", "much"),
    case("a choice misspelt", "matrix --explain nevr", "--explain", "nevr", "did you mean never?"),
    case("a dtype's short name", "kernelbench p s --dtype fp16", "--dtype", "fp16", "did you mean float16?"),
    case("problems without solutions", "matrix --problems .", "--problems", "--solutions"),
    # eval, report, compare, export, explain, gate
    case("no version", "eval", "--torch", "kernel-matrix eval --help"),
    case("a version that is not in the matrix", "eval --list --torch 2.4.0", "2.4.0", "2.1.0", "2.5.0"),
    case("half a version", "eval --list --torch 2.5", "2.5", "did you mean 2.5.0?"),
    case("a run that is not there", "report nowhere", "nowhere", "no such folder|does not exist"),
    case("a folder that is no run", "report src", "src", "no run|run.json", files={"src": None}),
    case("a file for a run", "report mine.cpp", "mine.cpp", "folder"),
    case("no run yet", "report", "reports/latest", "kernel-matrix matrix"),
    case("one run to compare", "compare done", "B", "kernel-matrix compare --help"),
    case("a run to compare that is not there", "compare done gone", "gone"),
    case("a version that was not compared", "compare done done --torch 9.9.9", "9.9.9", "2.1.0, 2.5.0"),
    case("no run to export", "export nowhere --format bencher", "nowhere"),
    case("a kernel that was not run", "explain done --kernel nope", "nope", "attention_scalar"),
    case("a reference misspelt", "gate done --reference flsh", "flsh", "did you mean flash?"),
    case("a share of nothing", "gate done --at-most 0", "--at-most", "above 0"),
    case("times that there are not", "gate done --times warm", "--times", "warm", "cold, hot"),
    case("a gate on a kernel that was not run", "gate done --kernel nope", "nope", "attention_scalar"),
    case("an option of matrix given to gate", "gate done --quick", "--quick", "--make|gate --help"),
    case("a folder to look in", "init here", "here", "init --help"),
    # bisect, sweep, kernelbench, images, bundle, doctor
    case("no releases", "bisect", "--good", "--bad"),
    case("releases in the wrong order", "bisect --list --good 2.5.0 --bad 2.1.0", "2.5.0", "2.1.0", "earlier|before"),
    case("a release in words", "bisect --list --good old --bad 2.5.0", "old", "not a version", "such as 2.5.0"),
    case("one release twice", "bisect --list --good 2.1.0 --bad 2.1.0", "2.1.0", "earlier|differ|same"),
    case("a question misspelt", "bisect --good 2.1.0 --bad 2.5.0 --what speed", "--what", "speed", "latency"),
    case("a target misspelt", "bisect --list --good 2.1.0 --bad 2.5.0 --target mth", "mth", "did you mean math?"),
    case("a sweep of no kernel", "sweep --list --kernel nope --workload small", "nope", "mine"),
    case("a sweep of nothing", "sweep --list --kernel mine --workload small", "mine", "search"),
    case(
        "a budget in words",
        "sweep --list --kernel mine --workload small --budget soon",
        "--budget",
        "soon",
        "10m",
        files={"matrix.yaml": TUNED},
    ),
    case(
        "a sweep on no workload",
        "sweep --list --kernel mine --workload big",
        "big",
        "small",
        files={"matrix.yaml": TUNED},
    ),
    case("problems that are not there", "kernelbench nowhere src", "nowhere", files={"src": None}),
    case("folders without problems", "kernelbench src src", "src", "no problem|.py", files={"src": None}),
    case("an action misspelt", "images biuld", "biuld", "did you mean build?"),
    case("a level that there is not", "bundle --level 99", "--level", "99"),
    case("a matrix that is not there", "doctor --matrix other.yaml", "other.yaml", "no such file|does not exist"),
    case("a matrix misspelt", "check --matrix matrix.yml", "matrix.yml", "did you mean matrix.yaml?"),
]

STARTED_BY_NOX = [
    case(name, command, *said, files=files, variables={BY_NOX: "1"})
    for name, command, said, files in (
        ("an option misspelt", "matrix --kernal mine", ("--kernal", "did you mean --kernel?"), {}),
        ("no releases for bisect", "bisect", ("--good, --bad", "nox -s bisect -- --help"), {}),
        ("no kernel for sweep", "sweep", ("--kernel", "nox -s sweep -- --help"), {}),
        ("one run for compare", "compare done", ("B", "nox -s compare -- --help"), {}),
        ("one folder for kernelbench", "kernelbench src", ("SOLUTIONS", "nox -s kernelbench"), {}),
        ("no run for report", "report", ("reports/latest", "nox -s matrix"), {}),
        ("a reference misspelt", "gate --reference flsh", ("flsh", "did you mean flash?"), {}),
        (
            "a tab in matrix.yaml",
            "check",
            ("matrix.yaml", "line 9", "tab"),
            {"matrix.yaml": MATRIX.replace("    sources", "\tsources")},
        ),
    )
]
