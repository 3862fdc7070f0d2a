# Both commands do all their own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint soak clean

demo: $(READY)
	$(BIN)/tuplet demo --out runs/demo

test: $(READY) lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not soak"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m soak

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv runs
