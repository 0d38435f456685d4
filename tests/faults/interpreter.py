"""Stands in for a pinned environment's Python: `python -m worker TASK REQUEST RESULT`, answered at once, always alike.

`harness.executors.venv` starts it as it starts the real one. It writes what the real tasks write, where they write it
and in the same order, so that a run of it can be disturbed hundreds of times. Only the standard library, for speed.
"""

import hashlib
import json
import os
import random
import select
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OK = {"status": "ok", "message": "", "log_excerpt": ""}


def answered(result):
    return json.dumps({"version": 1, **result}).encode()


def sha(*parts):
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def pause():
    time.sleep(random.random() * 0.01)  # from the clock: no two runs are disturbed alike


def write(path, data):
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            for start in range(0, len(data), 4096):
                file.write(data[start : start + 4096])
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def observe(_request, settings):
    return settings["observation"]


def build(request, settings):
    artifact = os.path.join(request["build_dir"], request["name"] + ".so")
    if request["defines"].get("FAULT") == "build" or not settings.get("builds", True):
        return {**OK, "status": "build_failed", "message": "error: static assertion failed: FAULT"}
    # What a kernel was built with stands at the beginning, for the verbs that run it.
    defines = json.dumps(request["defines"]).encode() + b"\n" if request["defines"] else b""
    code = sha(settings["environment"], request["sources"][0].split("/")[-1]).encode() * 64
    write(artifact, (defines + code)[:4096])
    with open(artifact, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {
        **OK,
        "compiler": "scripted 1.0",
        "flags": ["-O3"],
        "build_ninja": "rule",
        "build_s": 1.0,
        "artifact": artifact,
        "artifact_sha256": digest,
        "artifact_bytes": 4096,
        "objects": {},
        "functions": [],
    }


def built_with(kernel):
    """What the kernel was built with."""
    with open(kernel["artifact"], "rb") as file:  # a build that is not whole is not loaded
        code = file.read()
    assert len(code) == 4096, "the artifact is damaged"
    return json.loads(code.partition(b"\n")[0]) if code.startswith(b"{") else {}


def candidate(request, _settings):
    fault = built_with(request["kernel"]).get("FAULT")
    for recipe, trials in request["workload"]["recipes"].items():
        for trial in range(trials):
            folder = os.path.join(request["out"], recipe)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{trial}.bin"), "wb") as file:
                file.write(sha(recipe, trial).encode() * 256)
    if "crashes" in request["workload"]["id"]:
        print("about to abort", flush=True)
        pause()
        os.abort()
    return {**OK, "message": fault or ""}


def against(trials, share):
    """What a judge says of a target of which this share of the trials passes; nothing where no share is scripted."""
    if share is None:
        return []
    return [
        {
            "against": "truth",
            "passed": {"rounding": round(share * trials)},
            "max_abs": 0.0,
            "mean_abs": 0.0,
            "max_units": None,
            "units_per_trial": [],
            "mean_abs_per_trial": [],
            "norms": {},
            "within_strict_share": 1.0,
            "nonfinite_trials": 0,
            "histogram": [0] * 11,
            "worst": None,
        }
    ]


def judge(request, settings):
    recipes = []
    wrong = (request["candidate"] or {}).get("message") == "wrong"
    with open(os.path.join(HERE, "arrays.npz"), "rb") as file:
        write(request["arrays"], file.read())
    pause()
    for recipe, trials in request["workload"]["recipes"].items():
        if request["candidate"] is not None:
            for trial in range(trials):
                with open(os.path.join(request["candidate_out"], recipe, f"{trial}.bin"), "rb") as file:
                    assert file.read() == sha(recipe, trial).encode() * 256, "the candidate's output is damaged"
        write(os.path.join(request["truth_dir"], recipe + ".truth"), b"truth" * 1000)
        targets = [*request["references"], *(["kernel"] if request["candidate"] is not None else [])]
        recipes.append(
            {
                "recipe": recipe,
                "trials": trials,
                "truth_sha256": [],
                "rounding_cost": [],
                "costs": [],
                "power": [],
                "input_sha256": [sha("input", recipe, trial) for trial in range(trials)],
                "targets": [
                    {
                        **OK,
                        "target": target,
                        "against": against(trials, settings.get("passes")),
                        "output_sha256": [
                            sha(settings["environment"], target, recipe, trial) for trial in range(trials)
                        ],
                    }
                    for target in targets
                ],
            }
        )
    return {"status": "wrong" if wrong else "ok", "message": "none is right" if wrong else "", "recipes": recipes}


def library(request, _settings):
    write(request["out"], b"probe")
    return OK


def conditions(request, _settings):
    fault = built_with(request["kernel"]).get("FAULT")
    for job in request["jobs"]:
        write(os.path.join(request["out"], str(job["number"]), "done.json"), answered({**OK, "message": fault or ""}))
        pause()
    return OK


def weigh(request, _settings):
    results = []
    for job in request["jobs"]:
        fault, trials, repeats = job["done"]["message"], job["trials"], job["repeats"]
        bits = [[sha(trial, fault == "repeat" and i) for i in range(repeats)] for trial in trials]
        if fault == "poison":
            bits = [[sha(trial, job["number"])] * repeats for trial in trials]
        results.append(
            {
                **OK,
                "number": job["number"],
                "runs": len(trials) * repeats,
                "passed": len(trials) * repeats,
                "nonfinite": 0,
                "max_units": 1.0,
                "output_sha256": bits,
                "input_sha256": [sha(trial) for trial in trials],
            }
        )
    return {**OK, "results": results}


def host(request, _settings):
    """Tell the process that measures what the kernel was built with, and stay until that ends."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deadline = time.monotonic() + 60
    while connection.connect_ex(os.path.join(request["link"], "scripted")) and time.monotonic() < deadline:
        time.sleep(0.002)
    connection.send(json.dumps(built_with(request["kernel"])).encode())
    connection.recv(1)
    return OK


def met(link):
    """The connection of the process with the kernel, and what that was built with."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(os.path.join(link, "scripted"))
        listening.listen(1)
        while not select.select([listening], [], [], 0.05)[0]:
            assert not os.path.exists(os.path.join(link, "ended")), "its process ended"
        connection = listening.accept()[0]
    said = connection.recv(1 << 16)
    assert said, "its process ended"
    return connection, json.loads(said)


def timing(request, settings):
    built = {}
    if request["link"]:
        _connection, built = met(request["link"])  # closed when this process ends
    if request["held_back"]:
        sys.stdin.buffer.read()
    each_s = settings.get("each_launch_s", 0)
    time.sleep(settings.get("launch_s", {}).get(str(request["order_seed"]), each_s))
    shares = str(built.get("TIME", 100)).split("/")  # per cent, and on 2.5.0 where that is another
    share = int(shares["2.5.0" in settings["environment"] and len(shares) > 1]) / 100
    rows = []
    for order, (workload, target) in enumerate(request["rows"]):
        seed = sha(settings["environment"], workload, target, request["order_seed"])
        rows.append(
            {
                **OK,
                "workload": workload,
                "target": target,
                "order": order,
                "clock": "perf_counter_ns",
                "samples_us": [
                    settings.get("times", 1) * share * (100 + int(seed[i : i + 2], 16) / 100) for i in (0, 2, 4)
                ],
                "correct": None,
                **({"sampled_s": [0.1, 0.2, 0.3], "enqueue_us": [1.0] * 3} if request["device"] == "cuda" else {}),
            }
        )
        pause()
    load = {"load_average": 0.0, "busy_share_others": 0.0, "cpu_mhz": None, "steal_share": None}
    return {**OK, "threads": request["threads"], "load": load, "timings": rows}


def ceilings(_request, _settings):
    return {**OK, "matmul_tflops": {"float16": 700.0}, "copy_gbps": 4000.0}


VERBS = {
    "observe": observe,
    "build": build,
    "candidate": candidate,
    "judge": judge,
    "time": timing,
    "library": library,
    "host": host,
    "conditions": conditions,
    "weigh": weigh,
    "ceilings": ceilings,
}

if __name__ == "__main__":
    verb, asked, answer = sys.argv[3:]
    with open(os.path.join(HERE, "settings.json"), encoding="utf-8") as file:
        settings = json.load(file)
    with open(asked, encoding="utf-8") as file:
        request = json.load(file)
    print(f"{verb} begins", flush=True)
    pause()
    result = VERBS[verb](request, settings)
    print(f"{verb} ends", flush=True)
    pause()
    write(answer, answered(result))
