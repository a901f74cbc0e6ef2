# The service alone: no compiler, no pip, nothing of the sandbox or of the tests.
#   docker build -t ranking-evaluate .
#   docker build --build-arg LOCK=requirements-cdp.lock -t ranking-evaluate .   # with Coinbase's signed facilitator
# Where there is no engine, `scripts/image ROOT` takes the same steps in a Debian root. The base is pinned by its digest,
# Debian's packages by their versions; docs/decisions/pins.md says how to renew both.
FROM debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251 AS build

COPY deploy/packages.run deploy/packages.build /packages/
RUN apt-get update \
    && apt-get install -y --no-install-recommends $(grep -hv '^#' /packages/packages.run /packages/packages.build) \
    && apt-get clean && rm -rf /var/lib/apt/lists/*

ARG LOCK=requirements.lock
COPY requirements*.lock /build/
RUN python3 -m venv /opt/ranking-evaluate \
    && /opt/ranking-evaluate/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
        --only-binary :all: --require-hashes -r "/build/$LOCK" \
    && /opt/ranking-evaluate/bin/python -m pip uninstall --quiet --yes pip setuptools \
    && find /opt/ranking-evaluate -depth -type d -name tests -exec rm -r {} +

COPY src/ranking_evaluate /build/ranking_evaluate
RUN mv /build/ranking_evaluate "$(/opt/ranking-evaluate/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && printf '%s\n' '#!/opt/ranking-evaluate/bin/python' 'from ranking_evaluate.cli import app' 'app()' \
        > /opt/ranking-evaluate/bin/ranking-evaluate \
    && chmod 755 /opt/ranking-evaluate/bin/ranking-evaluate \
    && /opt/ranking-evaluate/bin/python -m compileall -q /opt/ranking-evaluate \
    && /opt/ranking-evaluate/bin/ranking-evaluate --version

FROM debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

COPY deploy/packages.run /packages/
RUN apt-get update \
    && apt-get install -y --no-install-recommends $(grep -hv '^#' /packages/packages.run) \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin ranking-evaluate \
    && install -d -o 10001 -g 10001 -m 700 /data

COPY --from=build /opt/ranking-evaluate /opt/ranking-evaluate

ENV PATH=/opt/ranking-evaluate/bin:/usr/bin:/bin
ENV PYTHONUNBUFFERED=1
ENV RANKING_EVALUATE_DATABASE_URL=sqlite:////data/attempts.db
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8402
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8402, timeout=2); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["ranking-evaluate"]
CMD ["serve", "--host", "0.0.0.0"]
