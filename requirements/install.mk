# How environments are installed, for the Makefile and tests/adapters.mk.
# pip, or uv when it is installed
INSTALLER ?= pip
# The torch build. TORCH_INDEX is an extra package index, such as PyTorch's index of CPU wheels.
TORCH ?= torch==2.13.0
TORCH_INDEX ?=

ifeq ($(INSTALLER),uv)
install = uv pip install --quiet --python $(1)/bin/python
else
install = $(1)/bin/python -m pip install --quiet --disable-pip-version-check
endif

# $(call locked,VENV,LOCK): every file is checked against the lock's hashes, and what has no wheel is
# built with the locked tools.
locked = $(call install,$(1)) --require-hashes --no-deps -r requirements/build.txt && \
	$(call install,$(1)) --require-hashes --no-deps --no-build-isolation -r requirements/$(2).txt
# After the lock, in which all is that torch needs but the libraries of a CUDA build.
torch = $(call install,$(1)) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "$(TORCH)"
editable = $(call install,$(1)) --no-deps --no-build-isolation
