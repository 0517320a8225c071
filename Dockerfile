# One image for every part; compose.yml says which command each container runs.
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir /src && rm -rf /src && useradd --create-home agl
USER agl
WORKDIR /agents
ENV AGL_LOG_FORMAT=json
ENTRYPOINT ["agl-streams"]
