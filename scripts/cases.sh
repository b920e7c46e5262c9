#!/usr/bin/env bash
# Runs the scenarios of the published cases and writes one report: cases.sh [FOLDER], by default target/cases.
# FULL=1 takes the published durations (hours) instead of the compressed ones (minutes).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

poolhouse=${POOLHOUSE:-target/release/poolhouse}
folder=${1:-target/cases}
fail() { printf 'cases: %s\n' "$*" >&2; exit 1; }

[ -x "$poolhouse" ] || fail "there is no $poolhouse: run 'make build'"
mkdir -p "$folder"
results=()
# A scenario that is interrupted shows what it has, and ends well; the next one is not wanted then.
trap 'exit 130' INT TERM
for scenario in churn-trouble churn-cure connections ephemeral zombies flood pool-of-pools exhaustion-trouble exhaustion-cure; do
    printf '\n== %s\n' "$scenario"
    "$poolhouse" bench "scenarios/$scenario.toml" --json "$folder/$scenario.json" --html "$folder/$scenario.html"
    results+=("$folder/$scenario.json")
done
printf '\n== MongoDB: a service in Java\n'
POOLHOUSE=$(realpath "$poolhouse") .venv/bin/python scripts/mongodb_cases.py --markdown "$folder/mongodb.md" --json "$folder/mongodb.json"
"$poolhouse" bench report "${results[@]}" --html "$folder/cases.html"
printf '\nThe reports: %s and, of MongoDB, %s\n' "$folder/cases.html" "$folder/mongodb.md"
