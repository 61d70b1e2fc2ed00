package wire

import (
	"strconv"
	"time"
)

// This file contains all messages of the hook and the daemon to pushers: what happened, to what,
// and what to do. It does without package fmt, which would make up half of the hook's size.

// Usage is the hook's message if it is not run by git.
const Usage = `refdb-hook is not a command to run by hand: git runs it as reference-transaction STATE or pre-receive, with lines
OLD NEW REF on standard input, or as update REF OLD NEW; "refdbctl site enable REPOSITORY" installs it`

// Messages of the hook.
const (
	RefusedWithoutReason = "refdb: the site daemon refused this without giving a reason; nothing was changed"
	TransactionTooLarge  = "the names of the refs in one transaction exceed 64 MB: push fewer at a time"
	ClosedWithoutAnswer  = "it closed the connection without an answer"
	DaemonRestarts       = "refdb: the site daemon is being restarted: this push waits for it"
)

// Undecided is the message if the daemon could not be asked. Git changes nothing.
func Undecided(reason string) string { return "refdb: " + reason + "; nothing was changed" }

// Untold is the message if the daemon could not be notified that git has committed or aborted.
func Untold(state, reason string) string {
	return "refdb: the site daemon was not told that git has " + state + " (" + reason + "): it will find out by itself"
}

// StdinUnreadable is the message if the hook can't read the refs.
func StdinUnreadable(err error) string { return "standard input can't be read: " + err.Error() }

// NotADuration means that an environment variable is not a duration.
func NotADuration(variable, value string) string {
	return variable + "=" + value + " is not a duration such as 5s"
}

// NotRun means that the repository's own hook can't be run.
func NotRun(path string, err error) string { return path + " can't be run: " + err.Error() }

// HookNotInPlace means that the repository's own hook at path is not where git would run it, and is
// not run from there.
func HookNotInPlace(path, dir string) string {
	return "the repository's own hook at " + path + " would not be run: " + enable(dir)
}

// NoOwnHook means that the repository has no hook of that name.
func NoOwnHook(name string) string { return "the repository has no hook " + name }

// EndedBySignal describes how the repository's own hook ended.
func EndedBySignal(path, signal string) string {
	return "refdb: " + path + " was ended by a signal: " + signal
}

// NotAGitDirectory means that the hook runs outside of a repository.
func NotAGitDirectory(dir string) string { return dir + " is not a Git directory" }

// NoRepository means that the hook can't enter a repository.
func NoRepository(dir string, err error) string {
	return "no Git repository at " + dir + ": " + err.Error()
}

// PathUnknown means that a directory has no absolute path.
func PathUnknown(dir string, err error) string {
	return "can't determine the path of " + dir + ": " + err.Error()
}

// SocketMissing means that the repository dir has no link to the daemon's socket.
func SocketMissing(path, dir string) string { return path + " is missing: " + enable(dir) }

// NotASocket means that the link does not lead to a socket.
func NotASocket(path, dir string) string { return path + " is not a socket: " + enable(dir) }

func enable(dir string) string {
	return "ask the administrator to run: refdbctl site enable " + dir
}

// SocketForbidden means that the pusher's user has no access to the daemon.
func SocketForbidden(path string, err error) string {
	return "this user may not connect to the site daemon (" + path + ": " + err.Error() + "): use the user that the daemon runs as"
}

// NothingWithin means that the daemon did not answer within the limit.
func NothingWithin(limit time.Duration) string { return "no answer within " + limit.String() }

// NoAnswer means that the daemon does not answer.
func NoAnswer(reason string) string {
	return "the site daemon does not answer (" + reason + "): ask the administrator to start it: systemctl start refdb-site"
}

// Messages about the daemon and the database.
const (
	DaemonStarting          = "the site daemon is starting: nothing was changed, retry in a few seconds"
	DaemonWaiting           = "the site daemon is waiting for the global ref database: nothing was changed, try again later"
	DaemonStopping          = "the site daemon is stopping: nothing was changed, retry in a few seconds" // hooks recognize it: see [Response.Stopping]
	DaemonNotServing        = "this site does not accept pushes now: nothing was changed; ask the administrator to run `refdbctl site status`"
	StateFull               = "the disk that holds the site daemon's state is full: nothing was changed, try again later; ask the administrator to run `refdbctl site status`"
	StateFailed             = "the site daemon can't read or write its state: nothing was changed, try again later; ask the administrator to run `refdbctl site status`"
	TooManyFiles            = "the site daemon has too many files open: nothing was changed, try again later; ask the administrator to raise LimitNOFILE of refdb-site"
	DatabaseSlow            = "the global ref database did not answer in time: nothing was changed, try again later"
	DatabaseDown            = "the global ref database does not answer: nothing was changed, try again later; ask the administrator to run `refdbctl site status`"
	DatabaseLost            = "the database has lost acknowledged changes: nothing was changed, try again later; ask the administrator to run `refdbctl recover`"
	DatabaseNotCompared     = "the global ref database's server was restarted or replaced, and not all sites have compared it yet"
	AnotherPIDNamespace     = "the hook and the site daemon run in different PID namespaces, and the daemon can't see the hook's: " + shareNamespace
	ProcOfAnotherNamespace  = "the /proc that the hook sees is not that of its PID namespace: mount it (unshare --mount-proc)"
	GuardInAnotherNamespace = "the guard and the site daemon run in different PID namespaces, so the daemon can't see when the guard ends: " + shareNamespace
	shareNamespace          = "run both in the same one (in compose: pid: \"service:NAME\"; in Kubernetes: shareProcessNamespace: true), or the daemon in one above (pid: host)"
	FollowsForEarlier       = "this git was started by another version of the site daemon: nothing was changed"
	EarlierFollower         = "refs of the repository are being moved to what the database holds: nothing was changed, retry in a few seconds"
	GuardDied               = "a guard of this site has died, and its open transactions in the repository are not settled yet: nothing was changed, retry in a few seconds"
	GuardChanged            = "another process has started sessions with this ID: each run of a guard needs a new random ID"
	TransactionGivenUp      = "the guard no longer waits for the answer"
	TooManyTransactions     = "this guard has too many open transactions: nothing was changed, try again later"
	PusherGone              = "the pushing process has ended"
	PusherUnreadable        = "the pushing process can't be inspected"
	NothingWasChanged       = "nothing was changed"
	ObjectsGone             = "the objects stored for this push have expired in the global ref database: nothing was changed, push again"
	TooManyUnusedPacks      = "too many objects of other pushes are being stored: nothing was changed, push again later"
	BeingPruned             = "the repository is being pruned: nothing was changed, push again in a few seconds"
	PrunedMeanwhile         = "objects that this change needs were pruned in the meantime: nothing was changed, push again"
	refsInOnePush           = " refs in one push: the rest are refused, push them again"
	refsInOneTransaction    = " refs in one transaction: nothing was changed, push fewer at a time"
)

// An AwaitedSite has not compared the database's server yet.
type AwaitedSite struct {
	Name string
	Seen time.Time // when it last reported; zero if it is not known
}

// NotCompared is the refusal of a push while sites still have to compare a new server of the database.
// It names the sites that are awaited, if they are known.
func NotCompared(awaited []AwaitedSite) string {
	text, separator := DatabaseNotCompared, ": waiting for "
	for _, a := range awaited {
		text += separator + a.Name
		if !a.Seen.IsZero() {
			text += " (last seen " + a.Seen.UTC().Format(time.DateTime) + " UTC)"
		}
		separator = ", "
	}
	text += ": nothing was changed, retry in a few seconds; if this persists, ask the administrator to "
	if len(awaited) > 0 {
		text += "start the daemons of these sites, or to "
	}
	return text + "run `refdbctl recover --status`"
}

// AnotherUser means that the daemon serves another user than the pusher's.
func AnotherUser(daemon, pusher int) string {
	return "the site daemon runs as user " + strconv.Itoa(daemon) + " and serves only that user, not user " + strconv.Itoa(pusher) + ": run git as the same user"
}

// UnknownState means that the daemon does not know the state of the hook's request.
func UnknownState(state string) string {
	return "the site daemon does not know the state " + strconv.Quote(state) + ": install the hook that came with it: `refdbctl site enable --all`"
}

// NotGit means that the hook was started by a program that is not known to be git.
func NotGit(program string) string {
	return "the hook was started by " + Printable(program) + ", which is not git: nothing was changed; if it is, add it to the site's configuration as site.gitExe"
}

// TooManyInPush means that a push moves more refs than the limit.
func TooManyInPush(limit int) string { return "more than " + strconv.Itoa(limit) + refsInOnePush }

// TooManyInTransaction means that a transaction moves more refs than the limit.
func TooManyInTransaction(limit int) string {
	return "more than " + strconv.Itoa(limit) + refsInOneTransaction
}

// AndMore stands for the refusals that are not shown.
func AndMore(n int) string { return "and " + strconv.Itoa(n) + " more" }

// UnguardableName is the reason why a ref's name can't be in the database.
func UnguardableName(ref, reason string) string {
	return Printable(ref) + ": its name can't be guarded: " + OneLine(reason)
}

// Frozen means that no ref of the project may be moved; why says for what reason, and may say who
// decided that and when.
func Frozen(why string) string {
	return "the project is frozen: " + why + ": nothing was changed"
}

// Excluded means that git can't store a new ref beside another one.
func Excluded(ref, with string) string {
	return Printable(ref) + ": git can't store it beside " + Printable(with) + ", which the global database has: nothing was changed; " +
		"fetch, then push to another name or delete that one first"
}

// SymbolicRef means that a push creates a symbolic ref.
func SymbolicRef(ref string) string {
	return Printable(ref) + ": a symbolic ref can't be guarded: make it a branch, or skip it (guard.skipRef)"
}

// IsSymbolicRef means that a push goes through a symbolic ref.
func IsSymbolicRef(ref, target string) string {
	return Printable(ref) + ": it is a symbolic ref here, which can't be guarded: push to " + Printable(target)
}

// PastTheHook returns a command line that runs git in the repository at path without the hook, for
// an administrator who knows the consequences.
func PastTheHook(path string, command ...string) string {
	return gitIn(path, append([]string{"-c", "core.hooksPath=/dev/null"}, command...)...)
}

// gitIn returns a command line that runs git in the repository at path.
func gitIn(path string, command ...string) string {
	line := "git --git-dir=" + ShellWord(path)
	for _, word := range command {
		line += " " + ShellWord(word)
	}
	return line
}

// PointHead returns the command line that points HEAD of the repository at path to a ref.
func PointHead(path, ref string) string { return gitIn(path, "symbolic-ref", "HEAD", ref) }

// PutHead returns the command line that writes the value of HEAD of a project to the database.
func PutHead(project, value string) string {
	return "refdbctl refs put " + ShellWord(project) + " HEAD " + ShellWord(value) + " --force"
}

// RemoveSetting returns the command line that removes all values of a setting of the repository at
// path.
func RemoveSetting(path, key string) string { return gitIn(path, "config", "--unset-all", key) }

// RemoveSymbolicRef returns the command line that removes a symbolic ref of the repository at path.
func RemoveSymbolicRef(path, ref string) string {
	return PastTheHook(path, "symbolic-ref", "--delete", ref)
}

// PeerRef means that a ref is one of those fetched from a peer, below prefix.
func PeerRef(ref, prefix string) string {
	return Printable(ref) + ": only `refdbctl site sync` moves the refs of peers, which are kept below " + prefix
}

// OwnRef means that a ref is one of the daemon's own, below prefix.
func OwnRef(ref, prefix string) string {
	return Printable(ref) + ": the refs below " + prefix + " are reserved for the site daemon"
}

// WorkTreeRef means that the refs below prefix belong to a single work tree.
func WorkTreeRef(ref, prefix string) string {
	return Printable(ref) + ": refs below " + prefix + " belong to one work tree and never reach other sites: push it under another name"
}

// Lookalike means that the name of a new ref differs from those below prefix only by case.
func Lookalike(ref, prefix string) string {
	return Printable(ref) + ": a case-insensitive file system would place it below " + prefix + ", which is reserved: push it under another name"
}

// TrackingUpdate means that git push would change a ref of the repository that it pushes from.
func TrackingUpdate(ref string) string {
	return Printable(ref) + ": git push would undo what others have pushed in the meantime, because the remote's fetch refspec covers this ref; the push to the remote itself succeeded. " +
		"Ask the administrator to run `refdbctl site check`"
}

// RenameOverAnother means that git branch would rename a branch to an existing one.
func RenameOverAnother(from, to string) string {
	return Printable(from) + ": it can't be renamed to " + Printable(to) + ", which exists: nothing was changed; delete that first"
}

// Unresolved means that the outcome of an earlier push is unknown.
func Unresolved(ref string) string {
	return Printable(ref) + ": the outcome of another push to it is not known yet: retry in a few seconds"
}

// NotInDatabase means that a ref exists here, but not in the database.
func NotInDatabase(ref string) string {
	return Printable(ref) + " exists here but not in the global database: ask the administrator to run `refdbctl site check`"
}

// BeingFollowed is the reason for a push to a ref that this site is just moving to the database's value.
func BeingFollowed(ref string) string {
	return ref + ": this site is behind, and is catching up: fetch and retry in a few seconds"
}

// Behind means that a ref has another value here than in the database. The values are abbreviated.
func Behind(ref, local, global string) string {
	return Printable(ref) + ": this site is behind (global " + global + ", here " + local + "): fetch and retry in a few seconds"
}

// LockedBy means that an owner has a ref locked.
func LockedBy(owner string) string { return "locked by " + owner }

// NeverInDatabase means that a ref has a value that the database never had. The value is
// abbreviated.
func NeverInDatabase(ref, local string) string {
	return Printable(ref) + ": it has " + local + " here, a value that the global database never had: ask the administrator to run `refdbctl site check`"
}

// ChangedHere means that the old value that a guard has read is not the ref's value. The values are
// abbreviated.
func ChangedHere(ref, read, local string) string {
	return Printable(ref) + ": it has changed in the meantime (it was " + read + ", here it is " + local + "): retry"
}

// DecisionUnheeded means that an operator has ended an earlier push to a ref, and that this site
// has not applied the decision yet.
func DecisionUnheeded(ref string) string {
	return Printable(ref) + ": an operator has resolved another push to it, and this site has not applied the decision yet: retry in a few seconds"
}

// PushUnderWay replaces [LockedBy] if the ref is locked by another push, at a site, or here if site
// is "".
func PushUnderWay(site string) string {
	if site == "" {
		return "another push to it is in progress here"
	}
	return "another push to it is in progress at " + site
}

// Locked describes the lock on a ref: how it is locked, since when, and how long that is.
func Locked(ref, how string, since time.Time, held time.Duration) string {
	return Printable(ref) + ": " + how + " since " + since.UTC().Format("15:04:05 MST") + " (" + held.Round(100*time.Millisecond).String() +
		"): retry; if it persists, ask the administrator to run `refdbctl locks list`"
}

// WorkTree says that the repository at path is a work tree of another one.
func WorkTree(path, repository string) string {
	return path + " is a work tree of " + repository + ": configure that one"
}

// Comparing means that a project changes from mode log to mode enforce.
func Comparing(project string) string {
	return "the refs of " + project + " are being compared between the sites: nothing was changed, push again in a few seconds; " +
		"if this persists, ask the administrator to run `refdbctl project set " + project + " --mode enforce` again"
}

// NotUnderGuard means that a repository with refs is not under guard.
func NotUnderGuard(path string) string {
	return path + " is not guarded, and pushes to it would bypass the global ref database: nothing was changed; " + enable(path)
}

// RulesChanged means that a project's rules have just changed, so that its pushes are refused, and
// for how long.
func RulesChanged(project string, left time.Duration) string {
	return "the guard rules of " + project + " have just changed: nothing was changed, push again in " + strconv.Itoa(int(left/time.Second)+1) + " seconds"
}

// UnknownProject means that the database does not have a project.
func UnknownProject(project string) string {
	return "the database has no project " + project + ": ask the administrator to run `refdbctl site enable --new " + project + "`"
}

// AnotherProject means that the repository at path records the ID of another project than its path
// stands for. That project is actual, unless actual is "".
func AnotherProject(project, actual, path string) string {
	what := "of one that the database does not have"
	if actual != "" {
		what = "of " + actual
	}
	return "this repository is not a copy of the project " + project + ", but " + what + ": it was moved or copied, or site.root was changed; " +
		"ask the administrator to run `refdbctl site check " + path + "`"
}

// KnownProject means that a repository's project is not new.
func KnownProject(project string) string {
	return "the project " + project + " already exists in the database: nothing was changed; if this repository is a copy of it, run `refdbctl site enable --copy " + project +
		"`; if it is another project, give it another path, or remove the earlier one at all sites first, with `refdbctl project remove " + project + "`"
}

// EmptyUnderKnownName means that a repository without refs does not become a copy of a project by
// its name alone.
func EmptyUnderKnownName(project string) string {
	return "this repository is empty and records no project, and the database has a project " + project + ", which may be an earlier one of the same name: nothing was changed; " +
		"if the repository is to become a copy of that project, with all its refs, ask the administrator to run `refdbctl site enable --copy " + project +
		"`; if it is another project, `refdbctl project remove " + project + "` first removes the earlier one at all sites"
}

// LostProject means that the database does not have the project that a repository records.
func LostProject(project string) string {
	return "the database does not have the project that this repository records: the database was set back, as by a restore, " +
		"or is another one; ask the administrator to run `refdbctl site enable --new " + project + "` if that is the right name"
}

// RemovedProject means that a project was removed.
func RemovedProject(project string) string {
	return "the project " + project + " was removed: nothing was changed; to create it again, ask the administrator to run `refdbctl site enable --new " + project + "`"
}

// JustRemoved means that the name of a removed project can't be used again yet, and for how long.
func JustRemoved(project string, left time.Duration) string {
	return "the project " + project + " has just been removed: nothing was changed, try again in " + strconv.Itoa(int(left/time.Second)) + " seconds"
}

// ProjectExists means that a project can't be created: another site may have just created it.
func ProjectExists(project string) string {
	return "the project " + project + " already exists, perhaps just created at another site: nothing was changed; this site clones it by itself " +
		"with site.autoClone; otherwise ask the administrator to run `refdbctl site clone " + project + "`"
}

// ProjectReserved means that a project exists, but its repositories were not created yet.
func ProjectReserved(project string) string {
	return ProjectExists(project) + "; it has no refs: if the site that was creating it is lost, ask the administrator to free the name with `refdbctl project remove " + project + "`"
}

// ProjectVanished means that a project's repository is no longer at its path.
func ProjectVanished(project string) string {
	return "it was here and is missing: bring it back or, if it is lost, run `refdbctl site clone " + project + "`; " +
		"if it was deleted on purpose at all sites, run `refdbctl project remove " + project + "`, which removes it everywhere"
}

// RemovedProjectHas means that the database still has data of a removed project, so its name can't
// be used again yet.
func RemovedProjectHas(what, project string) string {
	return "the database still has " + what + " of the removed project " + project + ": run `refdbctl project remove " + project + "` again"
}

// RemovedProjectUnsettled means that an owner's push to a ref of a removed project is not settled,
// so the name can't be used again yet.
func RemovedProjectUnsettled(project, ref, owner string) string {
	return "a push of " + ref + " of the removed project " + project + " by " + owner + " is not settled: see `refdbctl locks list --intents`"
}

// OtherHistory means that a repository has no history in common with the project that its path
// stands for; [OtherHistoryThan] is the rest of the sentence.
const OtherHistory = "it has another history"

// OtherHistoryThan names the project of [OtherHistory], and says what to do.
func OtherHistoryThan(project string) string {
	return " than the project " + project + ": none of its refs has a value that the database has or had, and it lacks the objects of those; nothing was changed: " +
		"if it is another project, give it another path; otherwise move it aside and run `refdbctl site clone " + project + "`"
}

// RefsWithoutProject means that the database has refs of a project, but not the project.
func RefsWithoutProject(project string) string {
	return "the database has refs of " + project + ", but no such project: nothing was changed; ask the administrator to look at `refdbctl refs list " + project +
		"` and, if these refs are not needed, to run `refdbctl project remove " + project + "`"
}

// BeingCreated means that another process is creating a project's repository.
func BeingCreated(project string) string {
	return "the project " + project + " is being created: nothing was changed, try again in a few seconds"
}

// PathTaken means that there is something at the path where a repository is to be created, or
// should be gone.
func PathTaken(path string) string {
	return path + " already exists: nothing was changed; ask the administrator to move it away"
}

// NoHookProgram means that repositories can't be put under guard.
const NoHookProgram = "refdb-hook is neither beside the daemon's program nor in PATH, so nothing can be guarded: nothing was changed; ask the administrator to install it"

// WaitingForDatabase tells a pusher how long the push will still wait.
func WaitingForDatabase(left time.Duration) string {
	return "the global ref database does not answer; this push waits for it, for up to " + left.Round(time.Second).String()
}

// ObjectsStored reports how much of a push is in the database.
func ObjectsStored(bytes int64) string {
	return "storing objects in the global ref database: " + strconv.FormatInt(bytes>>20, 10) + " MiB"
}

// PackTooLarge means that a push exceeds the limit for stored packs, in MiB.
func PackTooLarge(limit int64) string {
	return "this push brings more than " + strconv.FormatInt(limit, 10) + " MiB: nothing was changed; push it in parts, " +
		"or ask the administrator to raise site.packLimit"
}

// PackTooLargeWhileLocked means that refs move, without a push, to more objects than are stored
// while refs are locked, in MiB.
func PackTooLargeWhileLocked(limit int64) string {
	return "more than " + strconv.FormatInt(limit, 10) + " MiB can't be stored while refs are locked: nothing was changed; use git push, or do it in parts"
}

// RepositoryIsShallow means that the history of the repository at path is cut off.
func RepositoryIsShallow(path string) string {
	return path + " is shallow, so its objects can't be stored for the other sites: nothing was changed; " +
		"ask the administrator to run `git fetch --unshallow` there, or `refdbctl site clone`"
}
