package refdbtest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
)

// bugVar names the bug that a child process is to run the suite with.
const bugVar = "REFDBTEST_BUG"

func open(testing.TB) refdbtest.Database { return newMemory(os.Getenv(bugVar)) }

// It shows that what fails in TestEveryBugIsCaught does so because of a bug.
func TestTheSimplestDriverPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite with the driver whose bugs it is to catch; package memory runs it; make test-all runs both")
	}
	refdbtest.Run(t, open)
}

func TestTheSimplestDriverPassesAlternating(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite with requests alternating between two drivers; make test-all runs it")
	}
	refdbtest.Run(t, refdbtest.Alternating(open))
}

func TestAPairNotifiesIfItsDriversDo(t *testing.T) {
	if _, ok := refdbtest.Alternating(open)(t).Open(t).(driver.Notifier); !ok {
		t.Error("it does not")
	}
}

// Each of these drivers has one bug, of a kind that the databases' own drivers could have, and
// must fail the topic.
func TestEveryBugIsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite once for each of hundreds of bugs; make test-all runs it")
	}
	for topic, bugs := range map[string][]string{
		"Get":             {"no tombstones", "op of the first", "context ignored"},
		"List":            {"order of a language", "projects by prefix", "prefix by like", "page starts with the last", "page before tombstones", "pages without Next"},
		"Summaries":       {"order of a language", "tombstones are refs", "locks are no projects", "markers are locks", "first change", "page starts with the last", "pages without Next", "Next of the first row"},
		"Update":          {"zero is not unknown", "unknown matches all", "adopts tombstones", "values ignore case", "first mismatch only", "not all or nothing", "deletes rows"},
		"Mandatory locks": {"no mandatory locks", "mismatch before lock", "stale ended though refused", "stale locks stay", "all stale after 30 s", "future is stale"},
		"Fence":           {"fence by name", "fence by age", "fence looks at one row", "fence passes all", "released though refused", "owner ignored by fences"},
		"Remove": {"removes by prefix", "removes under locks", "no limit", "purges young tombstones", "tombstones take locks", "tombstones heed locks", "locks go first",
			"force takes locks first", "force takes intents"},
		"Acquire": {"takes what it can", "reclaims what it can", "names the first holder"},
		"Nonce":   {"no adoption", "adopts by owner", "partial rows stay", "nonce of any owner"},
		"Reclaim": {"token of the holder", "token by the clock", "reclaims fresh locks", "never reclaims", "marker stays", "future is stale", "by name"},
		"Beat": {"by name", "tokens not before", "beats all of the owner", "beats nothing", "beat renews the token", "results by name", "unknown is lost", "unknown for lost",
			"owner ignored by beats", "intents are locks to beats", "beats of one owner"},
		"Release":    {"by name", "tokens not before", "owner ignored by releases", "nothing is missing", "releases all or nothing", "missing in reverse"},
		"Purge":      {"by name", "tokens not before", "heartbeat ignored", "all purged", "owner ignored by purges", "purges the stale only", "intents are locks to purges"},
		"Abandon":    {"abandons nothing", "abandons all or nothing", "nonce ignored", "nonce of any owner", "intents are locks to abandonments"},
		"Locks":      {"page by ref", "sites by prefix", "markers are locks", "stale filter ignored", "prefix by like"},
		"Cursors":    {"pages without Next", "Next of the first row", "Next of the row before", "endless pages", "page by ref", "a page ends a ref"},
		"Connection": {"closes once", "context ignored"},
		"Queues": {"a refusal names what is kept for nobody", "nobody waits", "all wait", "one waits", "the last is first", "nobody is passed", "passing is forgotten", "tickets are new each time", "a lost ticket is forgotten",
			"reservations are in everybody's way", "reservations are locks", "turns that are over are for anybody", "intents are locks to those who wait", "those who are overtaken are forgotten", "reservations are reclaimed", "turns have no end", "turns are written as they are", "preparations pass nobody", "a turn goes on",
			"yields nothing", "keeps nothing", "nothing is free for want of others", "the granted wait on", "reclaims forget the queue", "beats forget the queue",
			"releases hand nothing on", "purges hand nothing on", "abandonments hand nothing on", "finishes hand nothing on", "resolutions hand nothing on", "revocations hand nothing on", "partial rows hand nothing on",
			"passing updates hand nothing on", "passing updates end queues of reservations", "passing updates leave turns that are over", "purges hand on what is kept", "the next is not preferred", "the next is preferred for ever", "the next is forgotten",
			"polls are waited for", "polls are never waited for", "one waiter is counted", "nobody gives up", "only the kept give up", "who gives up takes all with them"},
		"Notifier": {"wakes nobody", "wakes the last", "the second is not told", "the second is woken at once", "the next wakes others", "the next is not woken", "one listener",
			"resolutions hand nothing on", "finishes hand nothing on", "revocations hand nothing on", "purges hand nothing on", "removals wake nobody", "passing updates hand nothing on"},
		"Names":      {"names ignore case", "by name"},
		"Contenders": {"acquires after looking", "token of the holder"},
		"Races of locks": {"acquires after looking", "acquires row by row", "values before transaction", "fence before transaction", "locks before transaction", "beats after looking",
			"releases after looking", "purges after looking", "removes after looking", "abandons row by row"},
		"Races of updates": {"compares before transaction", "writes row by row", "reads row by row"},
		"Intents": {"preparations without a time", "preparations are of the future", "prepares what it can", "intents expect nothing", "records the first intent", "intents outlive their locks", "intents go stale", "advisory passes intents",
			"force takes intents", "removes under locks", "partial intents are given up", "no adoption", "mismatch leaves intents", "a page ends a ref",
			"sites by prefix", "decided are pending", "finishes by name", "fence passes intents", "never reclaims", "beats all of the owner",
			"intents are locks to releases", "intents are locks to purges", "intents are locks to abandonments", "owner ignored by finishes",
			"drops what it can", "finishes what it can", "finishes twice", "the first lost only", "all are lost", "mismatch before loss",
			"finishes over any value", "finishes by no operation", "finishes touch the dropped", "intents of nobody", "intents by no operation"},
		"Excluded names": {"names exclude nothing", "names of all projects", "the last name is named", "moves are judged", "deletions are judged", "deleted refs exclude", "intents exclude nothing",
			"all locks exclude", "looks at the first name below", "the first conflict only", "names above exclude nothing", "names below exclude nothing", "the next name above excludes",
			"the next name below excludes", "names exclude by prefix", "names exclude whatever their case", "names exclude by like", "what goes with the request excludes", "names come before locks",
			"names come before values", "an excluded name leaves intents", "updates are not judged", "all updates are judged"},
		"DB intents": {"intents of nobody", "intents by no operation", "finishes of nobody"},
		"Resolve": {"resolves by name", "resolves twice", "resolves without a lock", "resolves any lock", "never writes", "always writes", "resolved stay locked", "resolved are forgotten",
			"forgets the pending", "owner ignored by resolutions", "owner ignored by forgetting",
			"revokes by name", "revokes only what comes", "revokes only what came", "revokes the ref", "nonce of any owner"},
		"States": {"states of rows only", "states without stale locks", "context ignored"},
		"Projects": {"projects by prefix", "any revision is changed", "creates over a row", "revisions per project", "a write again is a change", "a lost write is written again", "after includes",
			"projects by name", "what is stored is forgotten", "revisions after looking", "revisions before their turn", "context ignored"},
		"Freeze": {"freezes no updates", "freezes no preparations", "freezes by prefix", "unreadable freezes freeze nothing", "a freeze has no reason", "rules that resemble a freeze freeze",
			"freezes are looked for in all rules", "a freeze comes after locks", "a freeze comes before a lost lock", "a freeze comes before adoption", "freezes the ends of intents"},
		"Races of freezes": {"looks at freezes before transaction", "freezes no updates", "freezes no preparations"},
		"Audit":            {"entries of all projects", "since excludes", "entries without order", "the last outcome stands", "concludes by time", "nothing is missing from the audit", "a caller's time", "a page starts with the last"},
		"History": {"records nothing", "records no deletions", "records by nobody", "finishes of nobody", "records without the owner", "a deleted ref is unknown", "records what was expected", "a position per ref",
			"removals are no changes", "purges are changes", "decisions are no changes", "a log by prefix", "a page of a log ends a position", "the history begins later"},
		"Changes": {"begins with the last", "changes by prefix of the project", "a page ends a position", "looks up by position", "looks up nothing", "positions before their turn", "prefix by like",
			"the newest by position", "the newest by name", "an empty page is not the last", "what has ended is complete"},
		"Tip": {"tips of all projects", "tips by prefix", "the tip is the first change", "deletions have no tip", "intents of all projects", "intents by prefix", "nothing is pending",
			"the decided are pending", "tips without a revision", "the admitted server is the tip's", "tips in two looks", "records nothing", "the mark stays"},
		"DB state keys": {"tips of all projects", "the tip is the first change", "deletions have no tip", "nothing is pending", "tips without a revision", "readers are always let through", "the mark stays"},
		"DB history":    {"looks up by position", "looks up nothing"},
		"Past": {"the past before a position", "the past is the present", "the past of standing refs", "a past without operations", "one page of the past", "the unknown are listed", "the deleted are listed",
			"a position before its time", "any time is now", "positions of the future"},
		"Prune": {"none is pruned unread", "followers are ignored", "keeps none", "prunes the young", "the mark stays", "no time of the pruned", "prunes one chunk", "reads what is left below the mark",
			"followers without order", "a cursor stays", "a follower's own time", "every follower was there"},
		"Packs": {"any part begins a pack", "parts outlive their pack", "parts are stored over", "complete packs take parts", "the last part comes first", "incomplete packs are read",
			"bases are used at once", "bases are not used", "bases have positions of their own", "packs are as old as their first part", "all packs count as used", "incomplete packs do not count", "no packs of all",
			"packs that are not there are ignored", "incomplete packs are used", "packs of any project are used", "uses what it can", "prepares without packs", "a missing pack leaves intents",
			"packs have the position of the last use", "positions are not raised", "a position per pack", "packs come before locks", "packs come before values", "packs come before adoption", "revoked preparations use packs",
			"packs are listed by ID", "packs of projects by prefix", "a page ends a position of packs", "a page begins with the last pack", "all packs are listed", "pages of packs are the last", "superseded packs are listed", "the base is not listed",
			"data of packs of many parts", "data of all that fit", "data of one more", "packs are complete too early", "packs are complete up to the last pack",
			"packs that come with a preparation are stored over", "packs that come with a preparation are not complete",
			"bases of packs are not compared", "packs that come with a preparation are used at once", "packs that come with a preparation are lost",
			"used packs are dropped", "incomplete packs are not dropped", "packs go without a limit", "nobody counts the packs that go",
			"used packs are abandoned", "packs are abandoned at once", "packs are abandoned by their first part", "incomplete packs are not abandoned", "complete packs are not abandoned", "bases are not abandoned",
			"incomplete bases supersede", "the first base supersedes", "packs of all projects are superseded", "unused packs are superseded", "packs after the base are superseded", "the base is superseded",
			"removes packs by prefix", "unused packs are not removed", "used packs are not removed", "context ignored"},
		"DB packs":       {"packs that are not there are ignored", "unused packs are not removed", "removes packs by prefix", "nobody counts the packs that go"},
		"Races of packs": {"stores after looking", "uses packs after looking", "packs get positions before their turn", "drops packs after looking"},
		"Admission": {"not compared by StorePart", "not compared by DropPack", "not compared by DropAbandonedPacks", "not compared by DropSupersededPacks", "not compared by RemovePacks", "not compared by Update", "not compared by Prepare", "not compared by Acquire", "not compared by Beat", "not compared by Release", "not compared by Purge", "not compared by Abandon",
			"not compared by Finish", "not compared by Revoke", "not compared by Resolve", "not compared by Forget", "not compared by Remove", "not compared by PurgeTombstones", "not compared by PutProject", "not compared by Prune", "not compared by States",
			"readers are always let through", "whatever is old was pruned", "nothing was pruned", "the decided stay missing", "intents end by their own operation", "looks for operations of any ref", "looks for no intents",
			"reports of other servers count", "late changes halt", "a second report is nothing", "open reports are complete", "nobody is away", "marks are ignored", "reports are believed", "admissions stay", "lost changes do not halt", "nobody is waited for",
			"recovers what is admitted", "recovers at once", "intents end with a recovery", "locks outlive a recovery", "the epoch begins last", "no new epoch", "a recovery writes by nobody", "an intent outlives its change",
			"barred sites prepare", "barred sites finish", "barred sites revoke", "sites are never closed", "testimonies are never given", "testimonies are given once", "words stay", "carried intents always count",
			"a site does not correct another's report", "whoever is excused is not waited for", "the policy goes back with the database"},
		"DB admission":   {"readers are always let through", "lost changes do not halt", "marks are ignored", "nobody is away"},
		"Races of names": {"names exclude nothing", "looks at names before transaction", "intents exclude nothing"},
		"Races of intents": {"compares intents before transaction", "acquires after looking", "fence before transaction", "locks before transaction", "removes after looking", "resolves after looking",
			"states in two looks", "compares before transaction", "finishes after looking"},
	} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			results := make(map[string]func(*testing.T) (string, bool))
			for _, bug := range bugs {
				results[bug] = start(bug, "TestTheSimplestDriverPasses", topic)
			}
			for bug, result := range results {
				t.Run(bug, func(t *testing.T) {
					out, passed := result(t)
					if passed {
						t.Errorf("the suite passed:\n%s", out)
					}
				})
			}
		})
	}
}

// What a driver keeps between two calls shows only if the second call goes to another driver.
func TestAlternatingCatchesWhatADriverKeeps(t *testing.T) {
	for _, topic := range []string{"Beat", "Release"} {
		alone := start("remembers its locks", "TestTheSimplestDriverPasses", topic)
		both := start("remembers its locks", "TestTheSimplestDriverPassesAlternating", topic)
		t.Run(topic, func(t *testing.T) {
			if out, passed := alone(t); !passed {
				t.Errorf("the suite failed without alternating:\n%s", out)
			}
			if out, passed := both(t); passed {
				t.Errorf("the suite passed:\n%s", out)
			}
		})
	}
}

// children limits how many processes run at once. They are more than the CPUs, because most of
// them wait for a wake-up that never comes.
var children = make(chan struct{}, 8)

// start runs a topic of the suite with a bug, in a process of its own. The function that it
// returns waits for the process, and reports whether the suite passed.
func start(bug, test, topic string) func(*testing.T) (out string, passed bool) {
	child := exec.Command(os.Args[0], "-test.run=^"+test+"$/^"+strings.ReplaceAll(topic, " ", "_")+"$", "-test.parallel=8", "-test.timeout=5m")
	child.Env = append(os.Environ(), bugVar+"="+bug)
	var out []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		children <- struct{}{}
		defer func() { <-children }()
		out, err = child.CombinedOutput()
	}()
	return func(t *testing.T) (string, bool) {
		t.Helper()
		<-done
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL")) {
			t.Errorf("the suite ended with %v:\n%s", err, out)
		}
		return string(out), err == nil
	}
}
