#!/usr/bin/env bash
# Installs what the tests with real clients need into bin/clients: a Python environment, Node packages and the Go
# driver. What is there already and pinned as it should be stays; without a change the whole takes a second.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${TBA_SKIP_CLIENTS:-}" = 1 ]; then
	echo "clients: not installed, TBA_SKIP_CLIENTS=1"
	exit 0
fi

die() {
	echo "clients: $*" >&2
	echo "clients: the tests with real clients need it; TBA_SKIP_CLIENTS=1 leaves them out" >&2
	exit 1
}

bin=$PWD/bin/clients
src=$PWD/tests/clients
mkdir -p "$bin"
# A module of its own: go's ./... must not look into packages of other languages, some of which carry Go files.
echo "module clients" >"$bin/go.mod"

# current LANGUAGE WHAT: whether bin/clients/LANGUAGE was installed from exactly this.
current() { [ -f "$bin/$1/installed" ] && [ "$(cat "$bin/$1/installed")" = "$2" ]; }

python() {
	command -v python3 >/dev/null || die "no python3: install Python 3.11 or newer with its venv module"
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$(python3 -V) is too old: install Python 3.11 or newer"
	local want
	want="$(python3 -V) $(cksum <"$src/python/requirements.txt")"
	current python "$want" && return
	rm -rf "$bin/python"
	python3 -m venv "$bin/python" || die "python3 -m venv failed: install the venv module (Debian: python3-venv)"
	"$bin/python/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$src/python/requirements.txt" ||
		die "pip could not install tests/clients/python/requirements.txt"
	"$bin/python/bin/python" -m compileall -q "$bin/python/lib" >/dev/null || true # so that the first run is as fast as the others
	echo "$want" >"$bin/python/installed"
}

node_packages() {
	command -v node >/dev/null && command -v npm >/dev/null || die "no node or npm: install Node.js 20 or newer"
	[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || die "node $(node -v) is too old: install Node.js 20 or newer"
	local want
	want="$(node -v) $(cat "$src/node/package.json" "$src/node/package-lock.json" | cksum)"
	current node "$want" && return
	rm -rf "$bin/node"
	mkdir -p "$bin/node"
	cp "$src/node/package.json" "$src/node/package-lock.json" "$bin/node/"
	ln -s "$src/node/driver.mjs" "$bin/node/driver.mjs"
	(cd "$bin/node" && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts) || die "npm could not install tests/clients/node/package-lock.json"
	echo "$want" >"$bin/node/installed"
}

go_driver() {
	(cd "$src/go" && "${GO:-go}" build -o "$bin/go-driver" .) || die "the Go driver in tests/clients/go could not be built"
}

# The Go build uses the processors, the other two the network: together they take as long as the longest.
node_packages & node_pid=$!
python & python_pid=$!
go_driver
wait "$node_pid"
wait "$python_pid"
