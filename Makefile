# Each target makes .venv by itself; the folder's `.ready-*` files tell which extras are in it.
# make demo ARGS="--kill-a-runner" passes flags on. PYTHON=/path/to/python3.12 chooses another interpreter.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PYTEST_ARGS ?=
# Agentlightning 0.3.0 with the dependencies of its day: never in the environment of this project.
PEER := .venv-conformance
PINS := tests/conformance/requirements-agentlightning-0.3.0.txt tests/conformance/requirements-pytest.txt
export PYTHON

.PHONY: help demo test unit lint format bench soak conformance bench-peers clean

help:
	@echo "make demo    a policy that learns, end to end, on an embedded server"
	@echo "make test    lint, types and tests (without the soak tests)"
	@echo "make unit    the tests alone"
	@echo "make lint    ruff and pyright"
	@echo "make format  let ruff rewrite the layout"
	@echo "make bench   the core benchmarks, as ratios against the raw engine; ARGS=store and ARGS=server for the others"
	@echo "make soak    the long repetitions"
	@echo "make conformance  agentlightning 0.3.0, its real client, runner and trainer, on our server"
	@echo "make bench-peers  our server and store beside agentlightning's own, as ratios"
	@echo "make clean   remove the virtual environments and caches"

demo: $(VENV)/.ready-demo
	$(BIN)/agl-streams demo $(ARGS)

bench: $(VENV)/.ready-demo
	$(BIN)/agl-streams bench $(if $(filter core store server,$(firstword $(ARGS))),,core) $(ARGS)

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint unit

unit: $(VENV)/.ready-dev
	$(BIN)/pytest -n 2 -m "not soak" $(PYTEST_ARGS)

soak: $(VENV)/.ready-dev
	$(BIN)/pytest -n 2 -m soak --timeout 3600 $(PYTEST_ARGS)

conformance: $(VENV)/.ready-demo $(PEER)/.ready-pins
	$(PEER)/bin/python -m pytest tests/conformance $(PYTEST_ARGS)

bench-peers: $(VENV)/.ready-demo $(PEER)/.ready-pins
	$(BIN)/python tools/bench_peers.py --peer-python $(PEER)/bin/python $(ARGS)

clean:
	rm -rf $(VENV) $(PEER) .pytest_cache .ruff_cache .hypothesis

$(VENV)/.ready-demo: pyproject.toml tools/make_venv.sh
	bash tools/make_venv.sh $(VENV) demo

$(VENV)/.ready-dev: pyproject.toml tools/make_venv.sh
	bash tools/make_venv.sh $(VENV) demo dev

$(PEER)/.ready-pins: $(PINS) tools/make_venv.sh
	bash tools/make_venv.sh $(PEER) $(addprefix -r ,$(PINS))
