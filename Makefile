# make train   install what is needed, then teach a team of agents (the embedded default)
# make train-llm   fetch a pretrained chat model of 93 MB and teach a team of two LoRA adapters on it
# make test    install what is needed, then run all tests but the nightly ones
# make check   formatting, lint, types, import contracts
# Repeated calls reuse what is there. Variables, settable on the command line:
PYTHON ?= python3
VENV ?= .venv
BACKENDS_VENV ?= .venv-backends
CONFIG ?= recipe:plan_path
RUN ?= runs/$(basename $(notdir $(CONFIG:recipe:%=%)))-$(shell date +%Y%m%d-%H%M%S)
LLM_RUN ?= runs/plan_path_smollm2-$(shell date +%Y%m%d-%H%M%S)
ARGS ?=
PYTEST_WORKERS ?= 2

BIN := $(VENV)/bin
METADATA := pyproject.toml trainers/pyproject.toml
include requirements/install.mk

.PHONY: train train-llm test coverage test-adapters test-workflows test-backends backends check format transcripts docs build gpu-pack locks audit sbom clean

train: $(VENV)/.train
	OMP_NUM_THREADS=1 $(BIN)/pettingllms-train $(CONFIG) --output-dir $(RUN) $(ARGS)

train-llm: $(VENV)/.train
	$(BIN)/pettingllms-train fetch-model smollm2
	$(BIN)/pettingllms-train recipe:plan_path_smollm2 --output-dir $(LLM_RUN) $(ARGS)

# Bytecode is kept whatever the shell says: each worker would rewrite all test modules, and each of
# the processes that tests start would compile all that it loads. A worker that ended is not replaced:
# the new one would begin with the test that ended it, for ever.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(PYTEST_WORKERS) \
		--dist loadscope --max-worker-restart 0 $(ARGS)

# Which lines and branches the tests reach: a table, and pages in .cache/coverage.
coverage: $(VENV)/.dev
	$(MAKE) test ARGS="--cov --cov-report=term --cov-report=html:.cache/coverage --cov-report=xml:.cache/coverage.xml $(ARGS)"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pyright -p trainers
	PYTHONPATH=envs:trainers $(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet .github

# Against real vLLM (its CPU build), DeepSpeed and Ray, in an environment of its own with a full lock.
# ARGS="-m smoke" takes the few that every submission must pass.
test-backends: $(BACKENDS_VENV)/.ready
	OMP_NUM_THREADS=1 PETTINGLLMS_REQUIRE_BACKENDS=1 $(BACKENDS_VENV)/bin/python -m pytest tests/trainers/backends $(ARGS)

backends: $(BACKENDS_VENV)/.ready

# The adapters against the real libraries, in environments of their own (some gigabytes).
test-adapters:
	$(MAKE) -f tests/adapters.mk PYTHON=$(PYTHON) TORCH=$(TORCH) TORCH_INDEX=$(TORCH_INDEX) ARGS="$(ARGS)"

# Programs and teams of other libraries, with pinned and newest versions, in environments of their own.
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
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases $(VERSION) latest

# A folder with all that a machine with torch and transformers alone needs for the GPU campaign; there
#   pip install --no-index --no-deps DIR/wheels/*.whl && python DIR/gpu_campaign.py --output RESULTS
# ARGS="--only-binary :all: --python-version 3.12" is for another Python than this one.
gpu-pack: $(VENV)/.dev
	git diff --quiet HEAD || { echo "commit what differs first: results name their commit"; exit 1; }
	mkdir -p $(DIR)/wheels
	git rev-parse HEAD > $(DIR)/commit.txt
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(DIR)/wheels . ./trainers
	$(BIN)/python -m pip download --quiet --no-deps --dest $(DIR)/wheels $(ARGS) \
		--constraint requirements/dev.txt --requirement benchmarks/gpu_wheels.txt
	cp -r benchmarks/gpu_*.py benchmarks/configs $(DIR)

# All locks anew; ARGS=--upgrade takes the newest releases, otherwise the versions that are there stay.
locks: $(VENV)/.dev
	$(BIN)/python requirements/lock.py $(ARGS)

# Known vulnerabilities of what the locks name; the list of them comes from the package index.
audit: $(VENV)/.dev
	for lock in build train dev backends; do \
		$(BIN)/pip-audit --disable-pip --require-hashes -r requirements/$$lock.txt || exit 1; \
	done

# What a release was tested with, as a software bill of materials in CycloneDX.
sbom: $(VENV)/.dev
	mkdir -p sbom
	$(BIN)/cyclonedx-py requirements requirements/train.txt --pyproject pyproject.toml \
		--output-reproducible -o sbom/pettingllms.cdx.json

clean:
	rm -rf $(VENV) $(BACKENDS_VENV) .cache dist sbom build .pytest_cache .ruff_cache .hypothesis

$(BACKENDS_VENV)/.ready: requirements/backends.txt $(METADATA)
	@echo "== creating $(BACKENDS_VENV) with vLLM, DeepSpeed and Ray"
	$(PYTHON) -m venv $(BACKENDS_VENV)
	$(call locked,$(BACKENDS_VENV),backends)
	$(call torch,$(BACKENDS_VENV))
	$(call editable,$(BACKENDS_VENV)) -e . -e trainers
	@touch $@

$(VENV)/.created:
	@echo "== creating the virtual environment $(VENV)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.train: $(VENV)/.created requirements/train.txt $(METADATA)
	@echo "== installing pettingllms, pettingllms-trainers and $(TORCH) (choose another build with TORCH= and TORCH_INDEX=)"
	$(call locked,$(VENV),train)
	$(call torch,$(VENV))
	$(call editable,$(VENV)) -e . -e trainers
	@touch $@

$(VENV)/.dev: $(VENV)/.train requirements/dev.txt
	@echo "== installing the extras and the development tools"
	$(call locked,$(VENV),dev)
	@touch $@
