# make -f tests/adapters.mk    test the adapters against the real libraries, in environments
# that are made if they are not there. The libraries cannot share one: RLlib pins gymnasium==1.2.2,
# verifiers pins mcp==2.0.0 while OpenEnv needs mcp<2, Tianshou needs pandas<3.
PYTHON ?= python3
FOLDER ?= .cache/adapters
ARGS ?=
HARBOR_PYTHON ?= python3.12
include requirements/install.mk

MODELS := trl verifiers textarena
AGENTS := ray tianshou supersuit openenv torchrl
TEST = OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PETTINGLLMS_ADAPTERS="$(1)" \
	$(FOLDER)/$(2)/bin/python -m pytest -q tests/pettingllms/adapters $(ARGS)

.PHONY: all models losses agents harbor nemo-gym clean

all: models losses agents harbor nemo-gym

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
		$(FOLDER)/harbor/bin/python -m pytest -q tests/pettingllms/adapters/test_packages.py $(ARGS)

nemo-gym: $(FOLDER)/nemo-gym/.ready
	OMP_NUM_THREADS=1 PETTINGLLMS_ADAPTERS=nemo_gym \
		$(FOLDER)/nemo-gym/bin/python -m pytest -q tests/pettingllms/adapters/test_packages.py $(ARGS)

# Harbor and NeMo Gym need Python 3.12.
$(FOLDER)/harbor/.ready $(FOLDER)/nemo-gym/.ready: PYTHON = $(HARBOR_PYTHON)

$(FOLDER)/%/.ready: requirements/adapters/%.txt pyproject.toml trainers/pyproject.toml tests/adapters.mk
	@echo "== creating the environment $*"
	$(PYTHON) -m venv $(@D)
	$(call locked,$(@D),adapters/$*)
	$(if $(filter models agents,$*),$(call torch,$(@D)))
	$(call editable,$(@D)) -e . $(if $(filter models,$*),-e trainers)
	@touch $@

clean:
	rm -rf $(FOLDER)/models $(FOLDER)/agents $(FOLDER)/harbor $(FOLDER)/nemo-gym
