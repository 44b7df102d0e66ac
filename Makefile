# Needs Python 3.11+, Java 17+ and make; everything else is set up by the targets themselves.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WITH_SERVERS := tests/contract tests/integration tests/acceptance
TOGETHER := -n 3 --dist loadfile --no-loadscope-reorder
APART := -n 2 --dist loadfile --no-loadscope-reorder
FAST := --hypothesis-profile=fast
# One verdict for a commit: the order of the files and the same random numbers. `make fault` and plain pytest shuffle.
SAME := --randomly-dont-reorganize --randomly-seed=1
SHORT := "short or not (full or fault or soak or matrix)"
REST := "(full or hypothesis) and not (fault or soak or matrix)"

.DEFAULT_GOAL := help
.PHONY: help setup java demo test test-all lint fault matrix soak models simulate mutants bench docs lock notice sbom audit dist clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: java $(READY) ## events from a transaction through Kafka and Spark into a table, verified (ARGS="--events 1000")
	@$(BIN)/inorder demo $(ARGS)

# Tests with real servers mostly wait for them, so three at a time share two cores well. They share one server of each
# kind; one worker has all that starts Spark. Those that kill run by themselves.
test: java $(READY) ## unit tests, then those with real servers: every guarantee at least once
	@$(BIN)/pytest tests/unit -m $(SHORT) $(FAST) -n 2 --dist worksteal $(SAME) --durations=5 --durations-min=0.5
	@$(BIN)/python -m inorder.embedded
	@$(BIN)/python -m tests.browser
	@$(BIN)/pytest $(WITH_SERVERS) -m $(SHORT) $(FAST) $(TOGETHER) $(SAME) --durations=15 --durations-min=1
	@$(BIN)/pytest tests/fault -m $(SHORT) $(APART) $(SAME) --durations=15 --durations-min=1

test-all: java $(READY) ## the rest: all combinations, both engines, more kills, more examples
	@$(BIN)/pytest tests/unit -m $(REST) -n 2 --dist worksteal $(SAME) --durations=5 --durations-min=0.5
	@$(BIN)/python -m inorder.embedded
	@$(BIN)/pytest $(WITH_SERVERS) -m $(REST) $(TOGETHER) $(SAME) --durations=15 --durations-min=1
	@$(BIN)/pytest tests/fault -m $(REST) $(SAME) --durations=15 --durations-min=1

lint: $(READY) ## style, types, and the layers of the house
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fault: java $(READY) ## the long runs: kills, pauses, cuts and full disks, new Hypothesis examples; writes docs/proof.md (STORMS=300 ARGS="-k storms")
	@$(BIN)/pytest tests/unit -m hypothesis --hypothesis-profile=deep -n 2 --dist worksteal
	@STORMS=$(or $(STORMS),10) RECORD_FAULTS=1 $(BIN)/pytest tests/fault tests/acceptance -m fault $(ARGS); \
		status=$$?; $(BIN)/python -m tests.proof.page && exit $$status

matrix: java $(READY) ## 1, 4 and 8 relays in every set-up, with errors, kills and freezes of 20 s (ARGS="-k 'drain and shards-4'")
	@$(BIN)/pytest tests/fault -m matrix $(ARGS)

bench: java $(READY) ## the relay, then the pipeline, each against a peer (ARGS="--rows 50000")
	@$(BIN)/inorder bench relay $(ARGS)
	@$(BIN)/inorder bench pipeline $(ARGS)

models: java $(READY) ## TLC checks the models of the protocols in large bounds, and finds their defects; some minutes
	@$(BIN)/python -m tests.proof.models large

simulate: $(READY) ## simulated relays and drivers under faults, by seeds; a failing seed prints its command (SEEDS=1000000)
	@$(BIN)/python -m tests.proof.simulate --seeds $(or $(SEEDS),10000)

mutants: $(READY) ## puts defects into the protocols, one at a time, and says which test catches each; some minutes
	@$(BIN)/python -m tests.proof.mutants

soak: java $(READY) ## a mix of faults under load for SOAK_MINUTES (30)
	@$(BIN)/pytest tests/fault -m soak -s

docs: $(READY) ## the pages generated from the code, then the site
	@$(BIN)/python -m inorder.cli.reference docs
	@$(BIN)/python -m tests.proof.page
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: ## requirements.lock anew from pyproject.toml; needs uv
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header -o requirements.lock

notice: $(READY) ## NOTICE anew: packages that an installation brings, and their licences
	@$(BIN)/python scripts/dependencies.py notice

sbom: $(READY) ## dist/inorder.cdx.json: a bill of materials in CycloneDX, from the lock
	@$(BIN)/python scripts/dependencies.py sbom dist/inorder.cdx.json

audit: $(READY) ## hashes, versions and licences of the lock, offline; with advisories: make audit ADVISORIES=all.zip
	@$(BIN)/python scripts/dependencies.py audit $(ADVISORIES)

dist: $(READY) ## the wheel and the source archive, in dist/
	@$(BIN)/python -m hatchling build -d dist

setup: $(READY) ## only .venv with the locked dependencies

clean: ## removes what was built; keeps .venv and downloads
	rm -rf site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .run
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@scripts/setup java

$(READY): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" scripts/setup
