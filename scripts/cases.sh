#!/usr/bin/env bash
# Plans and runs the scenarios of the published cases, has the doctor look at each run, and writes one report: cases.sh [FOLDER], by default
# target/cases.
# FULL=1 takes the published durations (hours) instead of the compressed ones (minutes).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

poolhouse=${POOLHOUSE:-target/release/poolhouse}
folder=${1:-target/cases}
fail() { printf 'cases: %s\n' "$*" >&2; exit 1; }

[ -x "$poolhouse" ] || fail "there is no $poolhouse: run 'make build'"
mkdir -p "$folder"
results=()
# What the plan says of a scenario, with the curve that its sweep has measured if it is one. Whether its objectives can be met at all is part of the answer.
plan() {
    printf '\n== %s, planned\n' "$1"
    "$poolhouse" plan "scenarios/$1.toml" "${@:2}" --html "$folder/$1-plan.html" --json "$folder/$1-plan.json" || [ $? -eq 99 ]
}
# A scenario that is interrupted shows what it has, and ends well; the next one is not wanted then.
trap 'exit 130' INT TERM
for scenario in churn-trouble churn-cure connections ephemeral zombies flood pool-of-pools exhaustion-trouble exhaustion-cure; do
    [ "$scenario" = connections ] || plan "$scenario"
    printf '\n== %s\n' "$scenario"
    "$poolhouse" bench "scenarios/$scenario.toml" --doctor --json "$folder/$scenario.json" --html "$folder/$scenario.html"
    results+=("$folder/$scenario.json")
    [ "$scenario" != connections ] || plan "$scenario" --curve "$folder/connections.json"
done
# What the doctor said of each run, beside one another: the trouble, and no fault in the cure.
printf '\n== what the doctor says\n'
.venv/bin/python - "${results[@]}" <<'END'
import json, sys

for path in sys.argv[1:]:
    with open(path) as file:
        runs = json.load(file)
    for run in runs if isinstance(runs, list) else [runs]:
        print(run.get("name") or run["about"]["load"])
        print(*(f"    {line}" for line in run["about"].get("doctor", ["nobody looked"])), sep="\n")
END
printf '\n== MongoDB: a service in Java\n'
POOLHOUSE=$(realpath "$poolhouse") .venv/bin/python scripts/mongodb_cases.py --markdown "$folder/mongodb.md" --json "$folder/mongodb.json"
"$poolhouse" bench report "${results[@]}" --html "$folder/cases.html"
printf '\nThe reports: %s, the plans beside it and, of MongoDB, %s\n' "$folder/cases.html" "$folder/mongodb.md"
