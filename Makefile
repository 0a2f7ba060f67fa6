# make train   install what is needed, then teach a team of agents (the embedded default)
# make train-llm   fetch a pretrained chat model of 93 MB and teach a team of two LoRA adapters on it
# make test    install what is needed, then run all tests but the nightly ones
# make check   formatting, lint, types, import contracts
# Repeated calls reuse what is there. Variables, settable on the command line:
PYTHON ?= python3
VENV ?= .venv
BACKENDS_VENV ?= .venv-backends
# The torch build. TORCH_INDEX is an extra package index, such as PyTorch's index of CPU wheels.
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
# pip, or uv when it is installed
INSTALLER ?= pip
CONFIG ?= recipe:plan_path
RUN ?= runs/$(basename $(notdir $(CONFIG:recipe:%=%)))-$(shell date +%Y%m%d-%H%M%S)
LLM_RUN ?= runs/plan_path_smollm2-$(shell date +%Y%m%d-%H%M%S)
ARGS ?=
PYTEST_WORKERS ?= 2

BIN := $(VENV)/bin
METADATA := pyproject.toml trainers/pyproject.toml constraints.txt
ifeq ($(INSTALLER),uv)
INSTALL := uv pip install --quiet --python $(BIN)/python -c constraints.txt
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
endif
EXTRA_INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: train train-llm test coverage test-adapters test-workflows test-backends backends check format transcripts docs build clean

train: $(VENV)/.train
	OMP_NUM_THREADS=1 $(BIN)/pettingllms-train $(CONFIG) --output-dir $(RUN) $(ARGS)

train-llm: $(VENV)/.llm
	$(BIN)/pettingllms-train fetch-model smollm2
	$(BIN)/pettingllms-train recipe:plan_path_smollm2 --output-dir $(LLM_RUN) $(ARGS)

# Bytecode is kept whatever the shell says: each worker would rewrite all test modules, and each of
# the processes that tests start would compile all that it loads.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(PYTEST_WORKERS) \
		--dist loadscope $(ARGS)

# Which lines and branches the tests reach: a table, and pages in .cache/coverage.
coverage: $(VENV)/.dev
	$(MAKE) test ARGS="--cov --cov-report=term --cov-report=html:.cache/coverage --cov-report=xml:.cache/coverage.xml $(ARGS)"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pyright -p trainers
	PYTHONPATH=envs:trainers $(BIN)/lint-imports

# Against real vLLM (its CPU build), DeepSpeed and Ray, in an environment of its own with a full lock.
# ARGS="-m smoke" takes the few that every submission must pass.
test-backends: $(BACKENDS_VENV)/.ready
	OMP_NUM_THREADS=1 PETTINGLLMS_REQUIRE_BACKENDS=1 $(BACKENDS_VENV)/bin/python -m pytest tests/trainers/backends $(ARGS)

backends: $(BACKENDS_VENV)/.ready

# The adapters against the real libraries, in environments of their own (some gigabytes).
test-adapters:
	$(MAKE) -f tests/adapters.mk PYTHON=$(PYTHON) TORCH=$(TORCH) TORCH_INDEX=$(TORCH_INDEX) ARGS="$(ARGS)"

# Teams of other frameworks, with their pinned and their newest versions, in environments of their own.
test-workflows:
	$(PYTHON) benchmarks/suites/workflow_frameworks.py --torch "$(TORCH)" $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX)) $(ARGS)

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

transcripts: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/envs --update-transcripts

build: $(VENV)/.dev
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist trainers

# Wheels and sdists of both distributions, installed into empty environments of all Pythons here.
# The trainer is installed without torch and the like, which no Python version changes.
install-check: build
	for version in 3.11 3.12 3.13; do \
		if python$$version -c "" 2>/dev/null; then $(BIN)/python tests/install_check.py python$$version dist || exit 1; \
		else echo "== python$$version is not here: skipped"; fi; \
	done

# The documentation of one version beside those that are there: make docs-version VERSION=0.1
docs-version: $(VENV)/.dev
	$(INSTALL) "mike>=2.1"
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases $(VERSION) latest

clean:
	rm -rf $(VENV) $(BACKENDS_VENV) .cache dist build .pytest_cache .ruff_cache .hypothesis

$(BACKENDS_VENV)/.ready: constraints-backends.txt pyproject.toml trainers/pyproject.toml
	@echo "== creating $(BACKENDS_VENV) with vLLM, DeepSpeed and Ray"
	$(PYTHON) -m venv $(BACKENDS_VENV)
	$(BACKENDS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BACKENDS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(EXTRA_INDEX) "$(TORCH)"
	$(BACKENDS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r constraints-backends.txt
	$(BACKENDS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e . -e trainers
	@touch $@

$(VENV)/.created:
	@echo "== creating the virtual environment $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@touch $@

$(VENV)/.torch: $(VENV)/.created
	@echo "== installing $(TORCH) (choose another build with TORCH= and TORCH_INDEX=)"
	$(INSTALL) $(EXTRA_INDEX) "$(TORCH)"
	@touch $@

$(VENV)/.train: $(VENV)/.torch $(METADATA)
	@echo "== installing pettingllms and pettingllms-trainers"
	$(INSTALL) -e ".[cli]" -e trainers
	@touch $@

$(VENV)/.llm: $(VENV)/.train
	$(INSTALL) -e "trainers[gguf]"
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	@echo "== installing the extras and the development tools"
	$(INSTALL) --group dev -e ".[cli,data,math,render,langgraph,openai-agents]" -e "trainers[gguf,tensorboard]"
	@touch $@
