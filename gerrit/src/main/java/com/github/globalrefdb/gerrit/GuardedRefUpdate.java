package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.google.common.flogger.FluentLogger;
import java.io.IOException;
import java.util.List;
import org.eclipse.jgit.lib.AnyObjectId;
import org.eclipse.jgit.lib.ObjectId;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.lib.RefDatabase;
import org.eclipse.jgit.lib.RefUpdate;
import org.eclipse.jgit.lib.Repository;
import org.eclipse.jgit.revwalk.RevWalk;
import org.eclipse.jgit.transport.PushCertificate;

/** An update of one ref. JGit's own update does the work, within a transaction of {@link RefGuard}. */
final class GuardedRefUpdate extends RefUpdate {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  private final GuardedRefDatabase refs;
  private final RefUpdate inner;
  private Result result; // null: the inner update's result

  GuardedRefUpdate(GuardedRefDatabase refs, RefUpdate inner) {
    super(inner.getRef());
    this.refs = refs;
    this.inner = inner;
  }

  private interface Step {
    Result run() throws IOException;
  }

  @Override
  public Result update() throws IOException {
    return update(inner::update);
  }

  @Override
  public Result update(RevWalk walk) throws IOException {
    return update(() -> inner.update(walk));
  }

  @Override
  public Result forceUpdate() throws IOException {
    setForceUpdate(true);
    return update();
  }

  @Override
  public Result delete() throws IOException {
    return delete(inner::delete);
  }

  @Override
  public Result delete(RevWalk walk) throws IOException {
    return delete(() -> inner.delete(walk));
  }

  private Result update(Step step) throws IOException {
    if (inner.getNewObjectId() == null) {
      return step.run(); // the inner update reports the missing value
    }
    return pinned(inner.getNewObjectId(), isForceUpdate() ? Result.FORCED : Result.FAST_FORWARD, step);
  }

  private Result delete(Step step) throws IOException {
    return pinned(ObjectId.zeroId(), Result.FORCED, step);
  }

  /** JGit compares the announced value under its lock. */
  private Result pinned(ObjectId to, Result moved, Step step) throws IOException {
    Ref ref = read();
    String name = isDetachingSymbolicRef() ? getName() : getRef().getLeaf().getName(); // JGit locks this ref
    if (!RefGuard.isAnnounced(name)) {
      return done(step.run());
    }
    if (!isDetachingSymbolicRef() && ref != null && !ref.getLeaf().getName().equals(name)) {
      return done(Result.LOCK_FAILURE); // the symbolic ref points to another ref since this update was created
    }
    ObjectId old = ref == null || ref.getObjectId() == null ? ObjectId.zeroId() : ref.getObjectId();
    ObjectId expected = inner.getExpectedOldObjectId();
    if (expected != null && !expected.equals(old)) {
      return done(Result.LOCK_FAILURE);
    }
    inner.setExpectedOldObjectId(old);
    try {
      String from = isDetachingSymbolicRef() ? RefReader.value(ref) : old.name();
      return move(new Move(from, to.name(), name), moved, step);
    } finally {
      inner.setExpectedOldObjectId(expected);
    }
  }

  @Override
  public Result link(String target) throws IOException {
    return move(new Move(RefReader.value(read()), RefReader.symbolic(target), getName()), Result.FORCED, () -> inner.link(target));
  }

  private Ref read() throws IOException {
    return refs.reader().read(List.of(getName())).get(getName());
  }

  private Result move(Move move, Result moved, Step step) throws IOException {
    if (move.movesNothing()) {
      return done(step.run());
    }
    Result[] byJgit = new Result[1];
    Outcome outcome;
    try {
      outcome = refs.guard().move(refs, getRefLogIdent(), List.of(move), () -> byJgit[0] = step.run());
    } catch (RefusedException e) {
      if (e.kind() == RefusedException.Kind.RETRY) {
        return done(Result.LOCK_FAILURE);
      }
      result = Result.IO_FAILURE;
      throw e;
    }
    return done(judge(outcome, move, byJgit[0], moved));
  }

  private static Result judge(Outcome outcome, Move move, Result byJgit, Result moved) throws IOException {
    if (outcome.thrown().isEmpty() && isSuccess(byJgit)) {
      // JGit reports a ref that was packed when the update was created as deleted, even if it did not delete it, because
      // the ref is loose by now.
      return outcome.showsOld(move) ? Result.LOCK_FAILURE : byJgit;
    }
    if (byJgit != Result.LOCK_FAILURE && outcome.shows(move)) {
      outcome.thrown().ifPresent(e -> logger.atWarning().withCause(e).log("refdb: a ref was moved, and then this was thrown"));
      return move.oldValue().equals(RefReader.ABSENT) ? Result.NEW : moved;
    }
    outcome.rethrow();
    return byJgit;
  }

  private static boolean isSuccess(Result result) {
    return switch (result) {
      case NEW, FORCED, FAST_FORWARD, RENAMED -> true;
      default -> false;
    };
  }

  private Result done(Result r) {
    result = r;
    return r;
  }

  @Override
  public Result getResult() {
    return result != null ? result : inner.getResult();
  }

  // Everything else is delegated to the inner update.

  @Override
  public String getName() {
    return inner.getName();
  }

  @Override
  public Ref getRef() {
    return inner.getRef();
  }

  @Override
  public ObjectId getNewObjectId() {
    return inner.getNewObjectId();
  }

  @Override
  public void setNewObjectId(AnyObjectId id) {
    inner.setNewObjectId(id);
  }

  @Override
  public ObjectId getExpectedOldObjectId() {
    return inner.getExpectedOldObjectId();
  }

  @Override
  public void setExpectedOldObjectId(AnyObjectId id) {
    inner.setExpectedOldObjectId(id);
  }

  @Override
  public ObjectId getOldObjectId() {
    return inner.getOldObjectId();
  }

  @Override
  public void setDetachingSymbolicRef() {
    inner.setDetachingSymbolicRef();
  }

  @Override
  public boolean isDetachingSymbolicRef() {
    return inner.isDetachingSymbolicRef();
  }

  @Override
  public boolean isForceUpdate() {
    return inner.isForceUpdate();
  }

  @Override
  public void setForceUpdate(boolean force) {
    inner.setForceUpdate(force);
  }

  @Override
  public void setCheckConflicting(boolean check) {
    inner.setCheckConflicting(check);
  }

  @Override
  public PersonIdent getRefLogIdent() {
    return inner.getRefLogIdent();
  }

  @Override
  public void setRefLogIdent(PersonIdent ident) {
    inner.setRefLogIdent(ident);
  }

  @Override
  public String getRefLogMessage() {
    return inner.getRefLogMessage();
  }

  @Override
  public void setRefLogMessage(String message, boolean appendStatus) {
    inner.setRefLogMessage(message, appendStatus);
  }

  @Override
  public void disableRefLog() {
    inner.disableRefLog();
  }

  @Override
  public void setForceRefLog(boolean force) {
    inner.setForceRefLog(force);
  }

  @Override
  public void setPushCertificate(PushCertificate certificate) {
    inner.setPushCertificate(certificate);
  }

  @Override
  protected RefDatabase getRefDatabase() {
    return refs;
  }

  @Override
  protected Repository getRepository() {
    return refs.repository();
  }

  // JGit calls these within the methods above, which are not its own here.

  @Override
  protected boolean tryLock(boolean deref) {
    throw new UnsupportedOperationException();
  }

  @Override
  protected void unlock() {
    throw new UnsupportedOperationException();
  }

  @Override
  protected Result doUpdate(Result desired) {
    throw new UnsupportedOperationException();
  }

  @Override
  protected Result doDelete(Result desired) {
    throw new UnsupportedOperationException();
  }

  @Override
  protected Result doLink(String target) {
    throw new UnsupportedOperationException();
  }
}
