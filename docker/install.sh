#!/bin/sh
# uv, with this site's certificates where the build brought any.
set -eu
certificates=/opt/installer/certificates.pem
[ ! -s "$certificates" ] || export SSL_CERT_FILE="$certificates"
export UV_PYTHON_INSTALL_DIR=/opt/python UV_NO_CACHE=1 UV_NO_CONFIG=1 UV_LINK_MODE=copy
exec /opt/installer/uv "$@"
