#!/usr/bin/env bash
# Fetches the driver and the object pool, checks them, and compiles the service into classes/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
sha256sum --check --quiet jars.sha256
javac --release 17 -cp 'lib/*' -d classes src/main/java/telemetry/*.java
