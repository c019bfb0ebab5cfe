# Images of the command `dreamer`: docker build --target cpu (or cuda) -t dreamer .
FROM python:3.12-slim AS base
WORKDIR /opt/dreamer
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY pyproject.toml constraints.txt README.md LICENSE dreamer_parallel.py ./
COPY docs docs
COPY embodied embodied
COPY dreamerv3 dreamerv3
# Further extras, as atari or ray: --build-arg EXTRAS=,atari,ray
ARG EXTRAS=""
# Runs and keys belong to a user of this number, whatever the host calls it.
RUN useradd --uid 1000 --create-home dreamer && mkdir /data && chown dreamer /data
VOLUME /data

FROM base AS cpu
RUN pip install -c constraints.txt ".[video${EXTRAS}]"
USER 1000
ENTRYPOINT ["dreamer"]
CMD ["help"]

# The CUDA libraries come as Python packages; the host needs NVIDIA's driver only.
FROM base AS cuda
RUN pip install -c constraints.txt ".[cuda,video${EXTRAS}]"
USER 1000
ENTRYPOINT ["dreamer"]
CMD ["help"]
