# A node: its agent, the launcher, and the default environment of jobs, notebooks and replicas.
#
#   docker build -f deploy/images/node.Dockerfile -t slipway/node .
#
# For BASE and BUILD_BASE see platform.Dockerfile.
ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off
RUN apt-get update && apt-get install -y --no-install-recommends tini
COPY requirements/jobs.txt requirements/slipway.txt requirements/portal.txt /build/
RUN python3 -m venv /opt/jobs \
 && /opt/jobs/bin/pip install -r /build/jobs.txt \
 && /opt/jobs/bin/pip uninstall --yes pip \
 && find /opt/jobs -type d -name tests -not -path '*/torch/*' -prune -exec rm -rf {} + \
 && rm -rf /opt/jobs/lib/python3*/site-packages/torch/include
# The agent has its own packages, so that the process with its token never loads those of a job.
# It retains pip, because it builds the environments of jobs.
RUN python3 -m venv /opt/slipway \
 && grep -E '^(docker|nvidia-ml-py|requests|urllib3|uv|websockets)==' /build/portal.txt >>/build/slipway.txt \
 && /opt/slipway/bin/pip install -r /build/slipway.txt
COPY requirements /app/requirements
COPY platform/slipway /app/platform/slipway
COPY workers /app/workers
RUN rm -rf /app/workers/control /app/workers/tracking /app/workers/gateway \
 && /opt/slipway/bin/python -m compileall -q /app

FROM ${BASE}
COPY --from=build /usr/bin/tini-static /usr/bin/tini
COPY --from=build /opt/jobs /opt/jobs
COPY --from=build /opt/slipway /opt/slipway
COPY --from=build /app /app
RUN useradd --uid 10002 --create-home slipway \
 && install --directory --owner slipway --group slipway --mode 0700 /node
ENV PATH=/opt/slipway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app/platform:/app
WORKDIR /app
USER slipway
ENTRYPOINT ["tini", "--", "python", "-m", "workers.node_agent", "--data-dir", "/node", \
            "--python", "/opt/jobs/bin/python", "--backend", "process"]
# This file, with the agent's process id, exists while the portal responds to the agent.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["sh", "-c", "kill -0 \"$(cat /node/connected)\""]
