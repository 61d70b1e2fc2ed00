package com.github.globalrefdb.gerrit;

import static org.eclipse.jgit.lib.RefUpdate.Result.FAST_FORWARD;
import static org.eclipse.jgit.lib.RefUpdate.Result.FORCED;
import static org.eclipse.jgit.lib.RefUpdate.Result.LOCK_FAILURE;
import static org.eclipse.jgit.lib.RefUpdate.Result.NEW;
import static org.eclipse.jgit.lib.RefUpdate.Result.NO_CHANGE;
import static org.eclipse.jgit.lib.RefUpdate.Result.REJECTED;
import static org.eclipse.jgit.lib.RefUpdate.Result.RENAMED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.globalrefdb.gerrit.session.Identity;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon.Request;
import com.github.globalrefdb.gerrit.session.SessionClient;
import com.google.gerrit.server.git.DelegateRepository;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.eclipse.jgit.api.Git;
import org.eclipse.jgit.internal.storage.file.FileRepository;
import org.eclipse.jgit.lib.BatchRefUpdate;
import org.eclipse.jgit.lib.CommitBuilder;
import org.eclipse.jgit.lib.Constants;
import org.eclipse.jgit.lib.NullProgressMonitor;
import org.eclipse.jgit.lib.ObjectId;
import org.eclipse.jgit.lib.ObjectInserter;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.RefUpdate;
import org.eclipse.jgit.lib.Repository;
import org.eclipse.jgit.revwalk.RevWalk;
import org.eclipse.jgit.transport.ReceiveCommand;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Real repositories, and a daemon that does what the test says. */
class GuardedRepositoryTest {
  private static final String ZERO = ObjectId.zeroId().name();
  private static final String MAIN = "refs/heads/main";

  @TempDir Path dir;
  private final List<Request> requests = new CopyOnWriteArrayList<>();
  private Step onAnnounce = request -> List.of("ok " + request.transaction());
  private Step onReport = request -> List.of("settled " + request.transaction());
  private ScriptedDaemon daemon;
  private SessionClient sessions;
  private FileRepository files;
  private Repository guarded;
  private ObjectId a;
  private ObjectId b; // after a
  private ObjectId other;

  private interface Step {
    List<String> answer(Request request) throws Exception;
  }

  @BeforeEach
  void open() throws Exception {
    daemon = new ScriptedDaemon(dir.resolve("s"));
    daemon.serve(this::answer);
    sessions =
        new SessionClient(
            dir.resolve("s"),
            () -> new Identity("test", dir, Optional.empty(), Optional.empty()),
            Duration.ofMinutes(10),
            () -> 0); // the daemon is never late
    files = new FileRepository(dir.resolve("a.git").toFile());
    files.create(true);
    // As Git's default: the branch that HEAD points to does not exist yet.
    assertEquals("refs/heads/master", files.exactRef("HEAD").getTarget().getName());
    guarded = GuardedRepository.wrap(files, new RefGuard(sessions, new RecentRefusals()));
    a = commit("a");
    b = commit("b", a);
    other = commit("other");
  }

  private List<String> answer(Request request) {
    requests.add(request);
    try {
      return (request.verb().equals("announce") ? onAnnounce : onReport).answer(request);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  @AfterEach
  void close() throws IOException {
    guarded.close();
    sessions.close();
    daemon.close();
  }

  private ObjectId commit(String message, ObjectId... parents) throws IOException {
    try (ObjectInserter inserter = files.newObjectInserter()) {
      CommitBuilder commit = new CommitBuilder();
      commit.setTreeId(inserter.insert(Constants.OBJ_TREE, new byte[0]));
      commit.setAuthor(new PersonIdent("Ann", "ann@example.com"));
      commit.setCommitter(commit.getAuthor());
      commit.setMessage(message);
      commit.setParentIds(parents);
      ObjectId id = inserter.insert(commit);
      inserter.flush();
      return id;
    }
  }

  /** Past the guard. */
  private void put(String ref, ObjectId id) throws IOException {
    RefUpdate update = files.updateRef(ref);
    update.setNewObjectId(id);
    update.forceUpdate();
  }

  private ObjectId holds(String ref) throws IOException {
    return Optional.ofNullable(new FileRepository(files.getDirectory()).exactRef(ref)).map(r -> r.getObjectId()).orElse(null);
  }

  private RefUpdate update(String ref, ObjectId id) throws IOException {
    RefUpdate update = guarded.updateRef(ref);
    update.setNewObjectId(id);
    return update;
  }

  private List<String> announced() {
    List<String> moves = new ArrayList<>();
    requests.stream().filter(r -> r.verb().equals("announce")).forEach(r -> moves.addAll(r.moves()));
    return moves;
  }

  private List<String> verbs() {
    return requests.stream().map(Request::verb).toList();
  }

  private static String move(Object from, Object to, String ref) {
    return name(from) + " " + name(to) + " " + ref;
  }

  private static String name(Object value) {
    return value instanceof ObjectId id ? id.name() : value.toString();
  }

  @Test
  void anUpdateIsAnnouncedAndReported() throws Exception {
    RefUpdate update = update(MAIN, a);
    update.setRefLogIdent(new PersonIdent("Ann", "ann@example.com"));
    assertEquals(NEW, update.update());
    assertEquals(NEW, update.getResult());
    assertEquals(a, holds(MAIN));
    assertEquals(List.of("announce", "report"), verbs());
    assertEquals("announce 1 3000 " + files.getDirectory().toPath().toRealPath(), requests.get(0).head());
    assertEquals(List.of("by Ann <ann@example.com>", move(ZERO, a, MAIN)), requests.get(0).lines());
  }

  @Test
  void eachWayToMoveARefIsAnnounced() throws Exception {
    assertEquals(NEW, update(MAIN, a).update());
    assertEquals(FAST_FORWARD, update(MAIN, b).update(new RevWalk(guarded)));
    assertEquals(REJECTED, update(MAIN, other).update());
    assertEquals(FORCED, update(MAIN, other).forceUpdate());
    RefUpdate throughTheDatabase = guarded.getRefDatabase().newUpdate(MAIN, false);
    throughTheDatabase.setForceUpdate(true);
    assertEquals(FORCED, throughTheDatabase.delete());
    assertEquals(
        List.of(move(ZERO, a, MAIN), move(a, b, MAIN), move(b, other, MAIN), move(b, other, MAIN), move(other, ZERO, MAIN)), announced());
    assertNull(holds(MAIN));
  }

  @Test
  void whatMovesNothingIsNotAnnounced() throws Exception {
    put(MAIN, a);
    assertEquals(NO_CHANGE, update(MAIN, a).update());
    assertEquals(List.of(), requests);
  }

  @Test
  void anUpdateOfHeadMovesItsBranch() throws Exception {
    assertEquals(NEW, update("HEAD", a).update());
    assertEquals(List.of(move(ZERO, a, "refs/heads/master")), announced());
    assertEquals(a, holds("refs/heads/master"));
  }

  @Test
  void aDetachedHeadIsAnnouncedAsHead() throws Exception {
    RefUpdate update = guarded.updateRef("HEAD", true);
    update.setNewObjectId(a);
    update.forceUpdate();
    assertEquals(List.of(move("ref:refs/heads/master", a, "HEAD")), announced());
    assertEquals(a, holds("HEAD"));
  }

  @Test
  void aLinkIsAnnouncedWithItsTargets() throws Exception {
    guarded.updateRef("HEAD").link("refs/heads/trunk");
    assertEquals(List.of(move("ref:refs/heads/master", "ref:refs/heads/trunk", "HEAD")), announced());
  }

  @Test
  void aRenameIsOneTransaction() throws Exception {
    put(MAIN, a);
    assertEquals(RENAMED, guarded.renameRef(MAIN, "refs/heads/trunk").rename());
    assertEquals(List.of(move(a, ZERO, MAIN), move(ZERO, a, "refs/heads/trunk")), announced());
    assertEquals(List.of("announce", "report"), verbs());
    assertEquals(a, holds("refs/heads/trunk"));
  }

  @Test
  void theCacheOfMergesIsNotAnnounced() throws Exception {
    assertEquals(NEW, update("refs/cache-automerge/00/11", a).update());
    execute(batch(true, new ReceiveCommand(ObjectId.zeroId(), a, "refs/cache-automerge/00/12")));
    assertEquals(List.of(), requests);
    assertEquals(a, holds("refs/cache-automerge/00/12"));
  }

  private BatchRefUpdate batch(boolean atomic, ReceiveCommand... commands) {
    return guarded.getRefDatabase().newBatchUpdate().setAtomic(atomic).setAllowNonFastForwards(true).addCommand(commands);
  }

  private void execute(BatchRefUpdate batch) throws IOException {
    try (RevWalk walk = new RevWalk(guarded)) {
      batch.execute(walk, NullProgressMonitor.INSTANCE);
    }
  }

  private static List<ReceiveCommand.Result> results(BatchRefUpdate batch) {
    return batch.getCommands().stream().map(ReceiveCommand::getResult).toList();
  }


  @Test
  void aBatchIsOneTransaction() throws Exception {
    put(MAIN, a);
    for (boolean atomic : new boolean[] {true, false}) {
      requests.clear();
      put("refs/heads/gone", other);
      String made = "refs/changes/01/1/" + atomic;
      ObjectId from = holds(MAIN);
      ObjectId to = atomic ? b : a;
      BatchRefUpdate batch =
          batch(
              atomic,
              new ReceiveCommand(from, to, MAIN),
              new ReceiveCommand(ObjectId.zeroId(), other, made),
              new ReceiveCommand(other, ObjectId.zeroId(), "refs/heads/gone"));
      execute(batch);
      assertEquals(List.of(ReceiveCommand.Result.OK, ReceiveCommand.Result.OK, ReceiveCommand.Result.OK), results(batch));
      assertEquals(List.of("announce", "report"), verbs());
      assertEquals(List.of(move(from, to, MAIN), move(ZERO, other, made), move(other, ZERO, "refs/heads/gone")), announced());
    }
  }

  @Test
  void commandsThatWereDecidedAreNotAnnounced() throws Exception {
    ReceiveCommand rejected = new ReceiveCommand(ObjectId.zeroId(), a, "refs/heads/rejected");
    rejected.setResult(ReceiveCommand.Result.REJECTED_OTHER_REASON);
    execute(batch(true, rejected, new ReceiveCommand(ObjectId.zeroId(), a, MAIN)));
    assertEquals(List.of(move(ZERO, a, MAIN)), announced());
  }

  @Test
  void aStaleOldValueIsALockFailure() throws Exception {
    put(MAIN, b);
    RefUpdate update = update(MAIN, other);
    update.setExpectedOldObjectId(a);
    assertEquals(LOCK_FAILURE, update.forceUpdate());

    ReceiveCommand stale = new ReceiveCommand(a, other, MAIN);
    ReceiveCommand good = new ReceiveCommand(ObjectId.zeroId(), a, "refs/heads/good");
    execute(batch(true, stale, good));
    assertEquals(ReceiveCommand.Result.LOCK_FAILURE, stale.getResult());
    assertEquals(ReceiveCommand.Result.REJECTED_OTHER_REASON, good.getResult());
    assertEquals(List.of(), requests);

    execute(batch(false, new ReceiveCommand(a, other, MAIN), new ReceiveCommand(ObjectId.zeroId(), a, "refs/heads/good")));
    assertEquals(List.of(move(ZERO, a, "refs/heads/good")), announced());
  }

  @Test
  void aRefThatTwoCommandsMoveIsRefused() throws Exception {
    BatchRefUpdate batch = batch(true, new ReceiveCommand(ObjectId.zeroId(), a, MAIN), new ReceiveCommand(ObjectId.zeroId(), b, MAIN));
    execute(batch);
    assertEquals(List.of(), requests);
    assertNull(holds(MAIN));
  }

  /** Without an expectation of its own JGit would move it all the same. */
  @Test
  void theAnnouncedOldValueIsPinned() throws Exception {
    put(MAIN, a);
    onAnnounce =
        request -> {
          put(MAIN, other);
          return List.of("ok " + request.transaction());
        };
    RefUpdate update = update(MAIN, b);
    assertEquals(LOCK_FAILURE, update.forceUpdate());
    assertEquals(other, holds(MAIN));
    assertEquals(List.of("announce", "report"), verbs());
    assertNull(update.getExpectedOldObjectId());
  }

  @Test
  void aRefusalThatTimeMendsIsALockFailure() throws Exception {
    onAnnounce = request -> List.of("refused " + request.transaction() + " retry behind", "this site is behind");
    assertEquals(LOCK_FAILURE, update(MAIN, a).update());
    BatchRefUpdate batch = batch(true, new ReceiveCommand(ObjectId.zeroId(), a, MAIN));
    execute(batch);
    assertEquals(List.of(ReceiveCommand.Result.LOCK_FAILURE), results(batch));
    assertEquals(List.of("announce", "announce"), verbs()); // each is a transaction, and nothing is reported
    assertEquals(Set.of("this site is behind"), GuardedRepository.of(guarded).orElseThrow().refusals().lines());
    assertNull(holds(MAIN));
  }

  @Test
  void aFinalRefusalIsAnException() throws Exception {
    onAnnounce = request -> List.of("refused " + request.transaction() + " final unknown", "refs/heads/main: unknown");
    assertEquals("refs/heads/main: unknown", assertThrows(RefusedException.class, () -> update(MAIN, a).update()).getMessage());
    assertThrows(RefusedException.class, () -> execute(batch(true, new ReceiveCommand(ObjectId.zeroId(), a, MAIN))));
    assertNull(holds(MAIN));
  }

  /** What throws after the move: Gerrit would do it twice. */
  @Test
  void whatWasMovedIsASuccessWhateverIsThrown() throws Exception {
    files
        .getListenerList()
        .addRefsChangedListener(
            event -> {
              throw new IllegalStateException("a listener");
            });
    assertEquals(NEW, update(MAIN, a).update());
    assertEquals(FAST_FORWARD, update(MAIN, b).update());
    BatchRefUpdate batch =
        batch(true, new ReceiveCommand(b, other, MAIN), new ReceiveCommand(ObjectId.zeroId(), a, "refs/heads/new"));
    execute(batch);
    assertEquals(List.of(ReceiveCommand.Result.OK, ReceiveCommand.Result.OK), results(batch));
    assertEquals(other, holds(MAIN));
    assertEquals(List.of("announce", "report", "announce", "report", "announce", "report"), verbs());
  }

  /** The answer may come in a later session, when others have moved the ref on. */
  @Test
  void whatTheThreadHasReadSaysWhatMoved() throws Exception {
    onReport = request -> List.of("settled " + request.transaction(), other.name() + " " + MAIN);
    assertEquals(NEW, update(MAIN, a).update());
    onAnnounce =
        request -> {
          put(MAIN, other); // past the guard: JGit fails
          return List.of("ok " + request.transaction());
        };
    onReport = request -> List.of("settled " + request.transaction(), b.name() + " " + MAIN);
    assertEquals(LOCK_FAILURE, update(MAIN, b).update());
  }

  /** Two that take the same block of numbers make the same object: one of them must try again. */
  @Test
  void aLockFailureStaysOneAlsoIfSomebodyElseMadeTheSameValue() throws Exception {
    onAnnounce =
        request -> {
          put(MAIN, a);
          return List.of("ok " + request.transaction());
        };
    assertEquals(LOCK_FAILURE, update(MAIN, a).update());
    put("refs/heads/x", b);
    onAnnounce =
        request -> {
          put("refs/heads/x", other);
          return List.of("ok " + request.transaction());
        };
    ReceiveCommand same = new ReceiveCommand(b, other, "refs/heads/x");
    execute(batch(true, same));
    assertEquals(ReceiveCommand.Result.LOCK_FAILURE, same.getResult());
  }

  /** JGit deletes from packed-refs what was there when the update was made, and says that it did. */
  @Test
  void aDeletionThatLeftTheRefIsNoSuccess() throws Exception {
    execute(batch(true, new ReceiveCommand(ObjectId.zeroId(), a, MAIN), new ReceiveCommand(ObjectId.zeroId(), a, "refs/heads/x")));
    RefUpdate delete = guarded.updateRef(MAIN);
    delete.setForceUpdate(true);
    put(MAIN, b); // loose
    assertEquals(LOCK_FAILURE, delete.delete());
    assertEquals(b, holds(MAIN));
  }

  @Test
  void theSettlementSaysWhatTheThreadCannotRead() throws Exception {
    for (ObjectId settled : List.of(a, other)) {
      Files.deleteIfExists(dir.resolve("a.git/" + MAIN));
      files
          .getListenerList()
          .addRefsChangedListener(
              event -> {
                try {
                  Files.writeString(dir.resolve("a.git/" + MAIN), "garbage\n");
                } catch (IOException e) {
                  throw new IllegalStateException(e);
                }
                throw new IllegalStateException("a listener");
              });
      onReport = request -> List.of("settled " + request.transaction(), settled.name() + " " + MAIN);
      if (settled == a) {
        assertEquals(NEW, update(MAIN, a).update());
      } else {
        assertThrows(IllegalStateException.class, () -> update(MAIN, a).update());
      }
    }
  }

  @Test
  void aBranchToWhichHeadNoLongerPointsIsNotMovedThroughIt() throws Exception {
    RefUpdate update = update("HEAD", a);
    files.updateRef("HEAD").link(MAIN);
    assertEquals(LOCK_FAILURE, update.update());
    assertEquals(List.of(), requests);
    assertNull(holds("refs/heads/master"));

    ReceiveCommand through = new ReceiveCommand(ObjectId.zeroId(), a, "HEAD");
    execute(batch(true, through));
    assertEquals(ReceiveCommand.Result.REJECTED_OTHER_REASON, through.getResult());
    assertEquals(List.of(), requests);
  }

  @Test
  void anErrorIsReportedAndThrown() throws Exception {
    files
        .getListenerList()
        .addRefsChangedListener(
            event -> {
              throw new StackOverflowError();
            });
    assertThrows(StackOverflowError.class, () -> update(MAIN, a).update());
    assertEquals(List.of("announce", "report"), verbs());
  }

  @Test
  void aNameThatCannotBeSentIsRefusedAlone() throws Exception {
    assertThrows(RefusedException.class, () -> update("refs/heads/a b", a).update());
    assertEquals(NEW, update(MAIN, a).update());
  }

  @Test
  void anInterruptedThreadReports() throws Exception {
    Thread.currentThread().interrupt();
    try {
      update(MAIN, a).update();
    } finally {
      assertTrue(Thread.interrupted());
    }
    assertEquals(List.of("announce", "report"), verbs());
    assertEquals(NEW, update("refs/heads/next", a).update());
  }

  @Test
  void withoutADaemonNothingMovesAndAllIsRead() throws Exception {
    put(MAIN, a);
    daemon.close();
    assertTrue(assertThrows(RefusedException.class, () -> update(MAIN, b).update()).getMessage().contains("does not answer"));
    assertEquals(a, guarded.exactRef(MAIN).getObjectId());
  }

  @Test
  void garbageCollectionIsRefused() throws Exception {
    put(MAIN, a);
    guarded.autoGC(NullProgressMonitor.INSTANCE);
    Repository unwrapped = ((DelegateRepository) guarded).delegate();
    assertThrows(UnsupportedOperationException.class, () -> Git.wrap(unwrapped).gc().call());
    assertThrows(IOException.class, () -> ((DelegateRepository) guarded).convertRefStorage("reftable", false, false));
    assertEquals(Map.of(), packedRefs());
  }

  private Map<String, String> packedRefs() {
    return dir.resolve("a.git/packed-refs").toFile().exists() ? Map.of("packed", "refs") : Map.of();
  }

  @Test
  void writesBelowTheFirstLayerAreGuardedToo() throws Exception {
    RefUpdate update = ((DelegateRepository) guarded).delegate().updateRef(MAIN);
    update.setNewObjectId(a);
    update.update();
    assertEquals(List.of("announce", "report"), verbs());
  }
}
