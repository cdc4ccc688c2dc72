#!/usr/bin/env python3
"""One Markdown table of what smoke.sh left in a folder: `table.py FOLDER`."""

import json
import pathlib
import re
import sys

ORDER = ["one", "recorded", "128", "4096", "exception", "exception-other-thread"]
CALLS = ["update", "dispatch", "combine"]
HEAD = ["pair", "input", "ranks x tokens", "rows a rank", "largest difference", "CPU backend",
        "verdict", *(f"{call}: GPU / host us" for call in CALLS)]
# How the vendor's benchmark calls the pairs.
PEER = {"LL": "LL expert-major", "HT FLAT": "HT flat", "HT EXPERT_MAJOR": "HT expert-major"}
PEER_LINE = re.compile(
    r"\] (LL|HT FLAT|HT EXPERT_MAJOR) dispatch gpu ([\d.]+)us host ([\d.]+)us .*"
    r"\| combine gpu ([\d.]+) host ([\d.]+) .*\| update gpu ([\d.]+) host ([\d.]+)")


def cell(gpu, host):
    return f"{gpu:.1f} / {host:.1f}"


def rows_of(report):
    given = report["input"]
    for pair in report["pairs"]:
        speed, cpu = pair["speed"], pair["cpu"]
        low, high = pair["rows_received_min"], pair["rows_received_max"]
        difference = pair["largest_difference"]
        yield [
            pair["pair"],
            f"{given['name']}, hidden {given['hidden']}, top-{given['top_k']} of {given['experts']}",
            f"{given['ranks']} x {given['tokens_per_rank']}",
            str(low) if low == high else f"{low}..{high}",
            "not a number" if difference is None else f"{difference:g}",
            f"{cpu['result']}, rows {cpu['rows']}" if cpu["result"] == "equal" else cpu["result"],
            pair["verdict"],
            *(cell(speed[call]["gpu"], speed[call]["host"]) if speed else "-" for call in CALLS),
        ]


def peer_rows(folder):
    """Of the slower rank, as above."""
    for path in sorted(folder.glob("peer-*.txt"), key=lambda path: int(path.stem[5:])):
        times = {}
        for found in PEER_LINE.finditer(path.read_text(errors="replace")):
            name, *numbers = found.groups()
            times.setdefault(name, []).append([float(number) for number in numbers])
        for name, ranks in times.items():
            d, dh, c, ch, u, uh = (max(numbers) for numbers in zip(*ranks))
            yield [f"{PEER[name]} (vendor's Python)", "random, hidden 7168, top-8 of 256",
                   f"{len(ranks)} x {path.stem[5:]}", "-", "-", "-", "-",
                   cell(u, uh), cell(d, dh), cell(c, ch)]


def main():
    folder = pathlib.Path(sys.argv[1])
    reports = {}
    for name in ORDER:
        path = folder / f"{name}.json"
        try:
            reports[name] = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except ValueError:
            print(f"\nStep {name} gave no report.")
    libraries = {f"{library['name']} {library['version']} ({library['path']})"
                 for report in reports.values() for library in report["backend"]["libraries"]}
    print("Libraries: " + ", ".join(sorted(libraries)) + ".\n")
    table = [row for name, report in reports.items() if not name.startswith("exception")
             for row in rows_of(report)]
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    for row in [*table, *peer_rows(folder)]:
        print("| " + " | ".join(row) + " |")
    for name, report in reports.items():
        lines = [line for pair in report["pairs"]
                 for line in [*pair["seen"], *(f"problem: {p}" for p in pair["problems"])]]
        reasons = [f"{pair['pair']}: not compared with the CPU backend: {pair['cpu']['reason']}"
                   for pair in report["pairs"] if pair["cpu"] and pair["cpu"]["reason"]]
        if lines or reasons:
            print(f"\nStep {name}, verdicts "
                  + ", ".join(f"{pair['pair']} {pair['verdict']}" for pair in report["pairs"])
                  + ":\n")
            for line in [*lines, *reasons]:
                print(f"* {line}")


main()
