# Two commands to begin with: `make run` and `make test`. Each installs what is missing, builds, and goes.
.DEFAULT_GOAL := help
.PHONY: help run wheel test test-quick test-release test-vllm agents replicas soak mutants build cuda-kernels setup model bench bench-server peer format clean mac-check agx-report
.NOTPARALLEL:

PRESET ?= release

help:
	@echo 'make run          install what is missing, build, fetch the default model, answer a prompt'
	@echo '                  (make run PROMPT="..." TOKENS=100)'
	@echo 'make test         the whole suite: release, ASan + UBSan with the fuzzers, TSan'
	@echo 'make test-quick   what your edits can reach, since the last time it was green: under a minute'
	@echo 'make test-release the release suite alone'
	@echo 'make test-vllm    the Python package and the vLLM plugin, with two versions of vLLM (4 GB, kept in the cache)'
	@echo 'make agents       the server through LangChain, instructor and litellm (100 MB of packages, kept in the cache)'
	@echo 'make replicas     several servers behind routers and Ray Serve, and the objects for Kubernetes (200 MB of packages, kept in the cache)'
	@echo 'make soak         the long forms: every pairing and order of threads, loads of minutes, fuzzers (SOAK_MINUTES=60)'
	@echo 'make mutants      80 one-line faults, one at a time: does the suite notice? Hours; goes on where it was stopped (MUTANTS=--list)'
	@echo 'make build        build only (PRESET=release, debug, asan or tsan)'
	@echo 'make cuda-kernels compile what the shipped configs need on an NVIDIA GPU into the cache; no GPU is needed'
	@echo 'make wheel        a wheel of the Python package for this Python, into dist/'
	@echo 'make bench        speed of the default model, and the race against llama.cpp (make peer builds that;'
	@echo '                  an hour and more; make bench ONLY=smollm2,q4_0,prefill-512 for less)'
	@echo 'make bench-server the server: the race against llama-server, and a long prompt among running streams'
	@echo 'make setup        install what is missing, nothing else'
	@echo 'make model        fetch the default model, nothing else'
	@echo 'make mac-check    on a Mac: the Metal device checked and measured on the real GPU, with a report (MODEL=...)'
	@echo 'make agx-report   what the kernels are on M1 and M2, by an open compiler: instructions, registers, spills (AGX=--help)'
	@echo 'make format       clang-format every source file'
	@echo 'make clean        remove the build folders (the model cache stays)'

setup:
	@scripts/setup.sh test

model:
	@scripts/setup.sh build
	@scripts/fetch_model.sh

run:
	@scripts/setup.sh build
	@scripts/build.sh release ingot
	@scripts/fetch_model.sh
	@scripts/run.sh

build:
	@scripts/setup.sh $(if $(filter asan tsan,$(PRESET)),test,build)
	@scripts/build.sh $(PRESET)

test:
	@scripts/setup.sh test
	@scripts/fetch_model.sh
	@scripts/test.sh

wheel:
	@scripts/setup.sh quick
	@scripts/wheel.sh dist

test-quick:
	@scripts/setup.sh quick
	@scripts/fetch_model.sh
	@python3 scripts/quick.py $(QUICK)

test-release:
	@scripts/setup.sh quick
	@scripts/fetch_model.sh
	@scripts/test.sh release

soak:
	@scripts/setup.sh test
	@scripts/fetch_model.sh
	@scripts/soak.sh

test-vllm:
	@scripts/setup.sh test
	@scripts/fetch_model.sh
	@scripts/vllm_test.sh

agents:
	@scripts/setup.sh build
	@scripts/build.sh release ingot scripted_server
	@scripts/fetch_model.sh
	@scripts/agents_test.sh

replicas:
	@scripts/setup.sh build
	@scripts/build.sh release ingot
	@scripts/replicas_test.sh

mutants:
	@scripts/setup.sh test
	@scripts/fetch_model.sh
	@python3 scripts/mutants.py $(MUTANTS)

bench:
	@scripts/setup.sh bench
	@scripts/build.sh release ingot
	@scripts/fetch_model.sh
	@scripts/bench.sh

bench-server:
	@scripts/setup.sh bench
	@scripts/build.sh release ingot
	@scripts/fetch_model.sh
	@scripts/bench.sh --server

cuda-kernels: build
	@scripts/warm_cuda_cache.sh

peer:
	@scripts/setup.sh bench
	@scripts/bench.sh --peer

agx-report:
	@scripts/setup.sh agx
	@scripts/build.sh release ingot softmetal_cc
	@scripts/agx_report.sh $(AGX)

format:
	@scripts/setup.sh format
	@git ls-files '*.h' '*.cc' | xargs $$(command -v clang-format-19 || command -v clang-format) -i

clean:
	rm -rf build build-debug build-asan build-tsan build-mutants

mac-check:
	@scripts/mac_check.sh $(MODEL)
