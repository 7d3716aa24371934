#!/usr/bin/env bash
# Check the specs of the repository in the current folder: annotations on standard output, and a SARIF file.
#   SPECS    git pathspecs, one per line     FAIL_ON   lowest severity that fails
set -euo pipefail
parc=$RUNNER_TEMP/parc-venv/bin/parc
sarif=$RUNNER_TEMP/parc.sarif

mapfile -t patterns < <(grep -v '^[[:space:]]*$' <<< "$SPECS" || true)
if [ "${#patterns[@]}" = 0 ]; then
  echo "::error title=PARC::the input specs is empty"
  exit 2
fi
mapfile -d '' -t files < <(git ls-files -z -- "${patterns[@]}")
if [ "${#files[@]}" = 0 ]; then
  echo "::warning title=PARC::no file matches the input specs"
  exit 0
fi

# The exit code of the second run decides. The first run fails on the same specs.
"$parc" check --format sarif -- "${files[@]}" > "$sarif" || true
echo "sarif-file=$sarif" >> "$GITHUB_OUTPUT"
"$parc" check --format github --fail-on "$FAIL_ON" -- "${files[@]}"
echo "PARC checked ${#files[@]} specs."
