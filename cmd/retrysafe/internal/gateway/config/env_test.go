package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

func TestVariables(t *testing.T) {
	t.Parallel()
	env := vars{
		"DIR": "/var/lib", "EMPTY": "", "LEASE": "45s", "OFF": "true", "N": "7",
		"YAML": "{from: none}", "NEST": "${DIR}", "COMMENT": "a # b",
	}
	for text, want := range map[string]string{
		"${DIR}/x.db": "/var/lib/x.db", "${NONE:-a b}.db": "a b.db", "${EMPTY:-c}": "c", "${NONE:-}x": "x", "x${EMPTY}": "x",
		"a$$b": "a$b", "$${DIR}": "${DIR}", "a$": "a$", "5$ and 6$": "5$ and 6$", "{$}": "{$}", "${NONE:-$$5}": "$5",
		"${NEST}": "${DIR}", "${YAML}": "{from: none}", "${COMMENT}": "a # b", "${DIR}${N}": "/var/lib7",
	} {
		if got := parseIn(t, env, least+`store: "sqlite:`+text+`"`).Store; got != "sqlite:"+want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}

	c := parseIn(t, env, least+`
defaults:
  lease: "${LEASE}"
  off: ${OFF}
  concurrency: ${N}
  include: ["/${N}"]
routes: [{ match: "POST /{$}" }]
`)
	if d := c.Defaults; d.Policy.Lease != 45*time.Second || !d.Off || d.Concurrency != 7 || d.Include[0] != "/7" {
		t.Errorf("a variable takes the type of its field; got %+v", d)
	}
	if c.Routes[0].Match != "POST /{$}" {
		t.Errorf("the end of a path is %s", c.Routes[0].Match)
	}
}

func TestVariablesThatAreWrong(t *testing.T) {
	t.Parallel()
	env := vars{"TENANT": "{from: none}", "PW": "hunter2", "BYTES": "a\xff", "LINES": "a\nlisten: :80"}
	for text, want := range map[string]string{
		least + "listen: ${NONE}":             "gw.yaml:3:9: listen: the environment has no NONE; set it, or give a default: ${NONE:-…}",
		least + "listen: $HOST:80":            `gw.yaml:3:9: listen: "$HOST:80": a variable is written ${NAME}, a dollar $$`,
		least + "listen: ${my-host}":          `gw.yaml:3:9: listen: "${my-host}": a variable is ${NAME} or ${NAME:-default}, where NAME has letters, digits and underscores; a dollar is $$`,
		least + "listen: '${A:-${B}}'":        `gw.yaml:3:9: listen: "${A:-${B}}": a variable is ${NAME} or ${NAME:-default}, where NAME has letters, digits and underscores; a dollar is $$`,
		least + "listen: '${A'":               `gw.yaml:3:9: listen: "${A": a variable is ${NAME} or ${NAME:-default}, where NAME has letters, digits and underscores; a dollar is $$`,
		"upstream: http://h\ntenant: $TENANT": `gw.yaml:2:9: tenant: "$TENANT": a variable is written ${NAME}, a dollar $$`,
		// What a variable holds is a text, never a part of the file.
		"upstream: http://h\ntenant: ${TENANT}": `gw.yaml:2:9: tenant: "${TENANT}" is none of header:NAME, bearer, jwt:CLAIM, none`,
		least + "store: sqlite:${LINES}":        "gw.yaml:3:8: store: what is there has a line break or another control character in it",
		least + "store_file: ${LINES}":          `gw.yaml:3:13: store_file: "${LINES}" has a line break or another control character in it`,
		least + "store_file: ${BYTES}":          `gw.yaml:3:13: store_file: "${BYTES}" is not valid UTF-8`,
		// A message shows what the file says: what the environment says may be secret.
		least + "defaults: {lease: '${PW}', in_flight: '${PW}'}": `gw.yaml:3:19: defaults.lease: "${PW}" is not a duration such as 30s, 15m, 24h or 7d
gw.yaml:3:39: defaults.in_flight: "${PW}" is none of conflict, wait, accepted`,
	} {
		_, err := config.Parse("gw.yaml", []byte(text), env.lookup)
		if err == nil || err.Error() != want {
			t.Errorf("%s\ngot\n\t%v\nwant\n\t%s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the message tells a secret: %v", err)
		}
	}
}
