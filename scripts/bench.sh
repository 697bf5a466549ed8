#!/usr/bin/env bash
# The figures, side by side with Mooncake's wheel in one run; arguments go to bench/compare.py (see there).
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" bench/compare.py "$@"
