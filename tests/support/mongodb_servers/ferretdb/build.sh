#!/usr/bin/env bash
# Builds FerretDB 1.24 for the tests, with its new authentication (SCRAM) where FERRETDB_USER and FERRETDB_PASSWORD are set when it runs:
# its public configuration cannot ask for that, so it is built of a copy in which that is added.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go mod download
folder=$(go list -m -f '{{.Dir}}' github.com/FerretDB/FerretDB)
copy=$(mktemp -d)
trap 'chmod -R u+w "$copy"; rm -rf "$copy"' EXIT
cp -r "$folder" "$copy/FerretDB"
chmod -R u+w "$copy"
sed -e 's|^import (|import (\n\t"os"\n\t"time"\n\n\t"github.com/FerretDB/FerretDB/internal/util/password"\n|' \
    -e 's|^\t\tTestOpts: registry.TestOpts{|\t\tSetupDatabase: setup("FERRETDB_USER", "app"),\n\t\tSetupUsername: os.Getenv("FERRETDB_USER"),\n\t\tSetupPassword: password.WrapPassword(os.Getenv("FERRETDB_PASSWORD")),\n\t\tSetupTimeout: 20 * time.Second,\n\n&\n\t\t\tEnableNewAuth: os.Getenv("FERRETDB_USER") != "",|' \
    "$folder/ferretdb/ferretdb.go" >"$copy/FerretDB/ferretdb/ferretdb.go"
cat >>"$copy/FerretDB/ferretdb/ferretdb.go" <<'GO'

func setup(key, value string) string {
	if os.Getenv(key) == "" {
		return ""
	}
	return value
}
GO
cp go.mod "$copy/build.mod"
cp go.sum "$copy/build.sum"
go mod edit -replace "github.com/FerretDB/FerretDB=$copy/FerretDB" "$copy/build.mod"
go build -modfile "$copy/build.mod" -o ferretdb .
