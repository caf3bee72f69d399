# make demo    the whole thing, from nothing to answers in psql
# make run     the server on ./millpond-data, at 127.0.0.1:4590; FLAGS="--listen .." gives it others
# make test    format, lints, all tests
# make bench   the benchmarks

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help packages toolchain build run test demo bench clean

# Outside of the work tree, so that a fresh clone finds what an earlier one has compiled.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/millpond-target
export PATH := $(HOME)/.cargo/bin:$(PATH)
BINARY := $(CARGO_TARGET_DIR)/release/millpond

# What Debian must have: RocksDB is compiled with clang's headers, mold links, the tests compare with a real PostgreSQL and use an S3 server in Python.
PACKAGES := build-essential ca-certificates ccache clang cmake curl libclang-dev mold pkg-config postgresql postgresql-client python3-venv

help:
	@sed -n 's/^# //p' Makefile | head -4

packages:
	@missing=()
	for package in $(PACKAGES); do
		dpkg-query -W -f='$${Status}' "$$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$$package")
	done
	if [ "$${#missing[@]}" -gt 0 ]; then
		echo "installing Debian packages: $${missing[*]}"
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo
		$$sudo apt-get update -qq
		DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends "$${missing[@]}"
	fi

toolchain: packages
	@if ! command -v cargo >/dev/null; then
		echo "installing Rust with rustup"
		curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs | sh -s -- -y --no-modify-path --profile minimal --component clippy --component rustfmt
	fi

build: toolchain
	@if [ ! -x "$(BINARY)" ]; then
		echo "building the server: the first time this compiles all that it stands on, which takes 10 to 40 minutes on two cores"
	fi
	cargo build --release --locked --bin millpond

run: build
	@exec "$(BINARY)" --data-dir ./millpond-data $(FLAGS)

# One profile everywhere, so that the dependencies are compiled once; only our own crates are not optimised for the tests.
UNOPTIMISED := $(foreach crate,storage engine planner server sql-tests,--config 'profile.release.package.millpond-$(crate).opt-level=0')

test: toolchain
	@sql-tests/object_server/install >/dev/null
	cargo fmt --all --check
	cargo clippy --release --locked $(UNOPTIMISED) --workspace --all-targets -- -D warnings
	cargo test --release --locked $(UNOPTIMISED) --workspace

demo: build
	@exec sql-tests/demo/run "$(BINARY)"

bench: build
	@exec sql-tests/bench/run "$(BINARY)"

clean:
	@cargo clean
