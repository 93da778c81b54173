#!/bin/sh
# Generates internal/gen from proto/ with the tools pinned under tools/.
# Everything runs locally; buf reaches no network plugin.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/tools/.bin
mkdir -p "$bin"
(cd "$root/tools/buf" && go build -o "$bin/" tool)
(cd "$root/tools/plugins" && go build -o "$bin/" tool)
cd "$root"
PATH=$bin:$PATH
export PATH
buf lint
buf generate
