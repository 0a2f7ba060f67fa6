# make -f tests/adapters.mk    test the adapters against the real libraries, in environments
# that are made if they are not there. The libraries cannot share one: RLlib pins gymnasium==1.2.2,
# verifiers pins mcp==2.0.0 while OpenEnv needs mcp<2, Tianshou needs pandas<3.
PYTHON ?= python3
FOLDER ?= .cache/adapters
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
ARGS ?=
HARBOR_PYTHON ?= python3.12

MODELS := trl verifiers textarena
AGENTS := ray tianshou supersuit openenv torchrl
TOOLS := pytest==9.2.0 hypothesis==6.170.15
EXTRA_INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
TEST = OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PETTINGLLMS_ADAPTERS="$(1)" \
	$(FOLDER)/$(2)/bin/python -m pytest -q tests/pettingllms/adapters $(ARGS)
INSTALL = $(FOLDER)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check \
	-c constraints-adapters.txt $(EXTRA_INDEX)

.PHONY: all models losses agents harbor nemo-gym workflows clean

all: models losses agents harbor nemo-gym workflows

models: $(FOLDER)/models/.ready
	$(call TEST,$(MODELS),models)

# Our loss against that of TRL's trainer, on one batch.
losses: $(FOLDER)/models/.ready
	OMP_NUM_THREADS=1 PETTINGLLMS_ADAPTERS=trl \
		$(FOLDER)/models/bin/python -m pytest -q tests/trainers/learning/test_trl_losses.py $(ARGS)

agents: $(FOLDER)/agents/.ready
	$(call TEST,$(AGENTS),agents)

harbor: $(FOLDER)/harbor/.ready
	OMP_NUM_THREADS=1 PETTINGLLMS_ADAPTERS=harbor \
		$(FOLDER)/harbor/bin/python -m pytest -q tests/pettingllms/adapters/test_package_harbor.py $(ARGS)

nemo-gym: $(FOLDER)/nemo-gym/.ready
	OMP_NUM_THREADS=1 PETTINGLLMS_ADAPTERS=nemo_gym \
		$(FOLDER)/nemo-gym/bin/python -m pytest -q tests/pettingllms/adapters/test_package_nemo_gym.py $(ARGS)

$(FOLDER)/models/.ready: pyproject.toml trainers/pyproject.toml constraints-adapters.txt tests/adapters.mk
	@echo "== installing TRL, verifiers and TextArena"
	$(PYTHON) -m venv $(FOLDER)/models
	$(call INSTALL,models) "$(TORCH)" $(TOOLS) gymnasium==1.4.0 mcp==2.0.0 openai==2.54.0 \
		pandas==3.1.1 -e ".[trl,verifiers,textarena]" -e trainers
	@touch $@

$(FOLDER)/agents/.ready: pyproject.toml constraints-adapters.txt tests/adapters.mk
	@echo "== installing RLlib, Tianshou, SuperSuit, OpenEnv and TorchRL"
	$(PYTHON) -m venv $(FOLDER)/agents
	$(call INSTALL,agents) "$(TORCH)" $(TOOLS) gymnasium==1.2.2 mcp==1.30.0 openai==3.51.0 \
		pandas==2.3.3 supersuit==3.11.0 torchrl==0.14.1 -e ".[rllib,tianshou,openenv]"
	@touch $@

# Harbor needs Python 3.12.
$(FOLDER)/harbor/.ready: pyproject.toml tests/adapters.mk
	@echo "== installing Harbor"
	$(HARBOR_PYTHON) -m venv $(FOLDER)/harbor
	$(FOLDER)/harbor/bin/python -m pip install --quiet --disable-pip-version-check \
		$(TOOLS) harbor==0.26.0 -e ".[cli]"
	@touch $@

# NeMo Gym needs Python 3.12, and an older openai than verifiers.
$(FOLDER)/nemo-gym/.ready: pyproject.toml tests/adapters.mk
	@echo "== installing NeMo Gym"
	$(HARBOR_PYTHON) -m venv $(FOLDER)/nemo-gym
	$(FOLDER)/nemo-gym/bin/python -m pip install --quiet --disable-pip-version-check \
		$(TOOLS) nemo-gym==0.4.0 httpx -e ".[cli]"
	@touch $@

# The examples of workflows against LangGraph and the OpenAI Agents SDK.
workflows: $(FOLDER)/workflows/.ready
	OMP_NUM_THREADS=1 $(FOLDER)/workflows/bin/python -m pytest -q \
		tests/examples/test_workflow_examples.py $(ARGS)

$(FOLDER)/workflows/.ready: pyproject.toml trainers/pyproject.toml tests/adapters.mk
	@echo "== installing LangGraph and the OpenAI Agents SDK"
	$(PYTHON) -m venv $(FOLDER)/workflows
	$(FOLDER)/workflows/bin/python -m pip install --quiet --disable-pip-version-check $(EXTRA_INDEX) \
		"$(TORCH)" $(TOOLS) -e ".[cli,langgraph,openai-agents]" -e trainers
	@touch $@

clean:
	rm -rf $(FOLDER)/models $(FOLDER)/agents $(FOLDER)/harbor $(FOLDER)/nemo-gym $(FOLDER)/workflows
