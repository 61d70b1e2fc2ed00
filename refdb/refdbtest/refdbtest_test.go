package refdbtest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
)

// bugVar names the bug that a child process is to run the suite with.
const bugVar = "REFDBTEST_BUG"

func TestTheSimplestDriverPasses(t *testing.T) {
	refdbtest.Run(t, func(testing.TB) refdbtest.Database { return newMemory(os.Getenv(bugVar)) })
}

// A suite is worth what it catches: each of these drivers has one bug, of the
// kind that the databases' own drivers could have, and must fail the topic.
func TestEveryBugIsCaught(t *testing.T) {
	for topic, bugs := range map[string][]string{
		"Get":              {"no tombstones", "op of the first", "context ignored"},
		"List":             {"order of a language", "projects by prefix", "prefix by like", "page starts with the last", "page before tombstones"},
		"Update":           {"zero is not unknown", "unknown matches all", "adopts tombstones", "values ignore case", "first mismatch only", "not all or nothing", "deletes rows"},
		"Mandatory locks":  {"no mandatory locks", "mismatch before lock", "stale ended though refused", "stale locks stay", "all stale after 30 s", "future is stale"},
		"Fence":            {"fence by name", "fence by age", "fence looks at one row", "fence passes all", "released though refused"},
		"Remove":           {"removes by prefix", "removes under locks", "no limit", "purges young tombstones", "tombstones take locks", "locks go first"},
		"Acquire":          {"takes what it can", "reclaims what it can", "names the first holder"},
		"Nonce":            {"no adoption", "adopts by owner", "partial rows stay", "nonce of any owner"},
		"Reclaim":          {"token of the holder", "token by the clock", "reclaims fresh locks", "never reclaims", "marker stays", "future is stale", "by name"},
		"Beat":             {"by name", "tokens not before", "beats all of the owner", "beats nothing", "beat renews the token", "results by name", "unknown is lost", "unknown for lost", "nonce ignored", "nonce of any owner"},
		"Release":          {"by name", "tokens not before", "heartbeat ignored", "nonce ignored", "nonce of any owner", "all released"},
		"Locks":            {"page by ref", "sites by prefix", "markers are locks", "stale filter ignored", "prefix by like"},
		"Connection":       {"closes once", "context ignored"},
		"Notifier":         {"wakes nobody", "forgets the line", "passes nothing on", "resolutions wake nobody"},
		"Names":            {"names ignore case", "by name"},
		"Contenders":       {"acquires after looking", "token of the holder"},
		"Races of locks":   {"acquires after looking", "acquires row by row", "values before transaction", "fence before transaction", "locks before transaction", "beats after looking", "releases after looking", "removes after looking"},
		"Races of updates": {"compares before transaction", "writes row by row", "reads row by row"},
		"Intents": {"prepares what it can", "intents expect nothing", "records the first intent", "intents outlive their locks", "intents go stale", "advisory passes intents",
			"force takes intents", "removes under locks", "intents are released as locks", "partial intents are given up", "no adoption", "mismatch leaves intents", "a page ends a ref",
			"sites by prefix", "decided are pending", "fence by name", "fence passes intents", "never reclaims", "nonce ignored", "beats all of the owner"},
		"Resolve": {"resolves by name", "resolves twice", "resolves without a lock", "never writes", "always writes", "resolved stay locked", "resolved are forgotten", "forgets the pending",
			"revokes by name", "revokes only what comes", "revokes only what came", "revokes the ref", "nonce of any owner"},
		"States": {"states of rows only", "states without stale locks", "context ignored"},
		"Races of intents": {"compares intents before transaction", "acquires after looking", "fence before transaction", "locks before transaction", "removes after looking", "resolves after looking",
			"states in two looks", "compares before transaction"},
	} {
		for _, bug := range bugs {
			t.Run(topic+": "+bug, func(t *testing.T) {
				t.Parallel()
				child := exec.Command(os.Args[0], "-test.run=^TestTheSimplestDriverPasses$/^"+strings.ReplaceAll(topic, " ", "_")+"$", "-test.parallel=8", "-test.timeout=1m")
				child.Env = append(os.Environ(), bugVar+"="+bug)
				out, err := child.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL") {
					t.Errorf("the suite ended with %v:\n%s", err, out)
				}
			})
		}
	}
}
