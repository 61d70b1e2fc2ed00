package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import com.github.globalrefdb.gerrit.session.RefusedException;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.RefRename;
import org.eclipse.jgit.lib.RefUpdate;
import org.eclipse.jgit.lib.RefUpdate.Result;

/** A rename: one transaction that deletes a ref and makes another. Gerrit itself renames none. */
final class GuardedRefRename extends RefRename {
  private final GuardedRefDatabase refs;
  private final RefRename inner;

  /** Source and destination are for the base class. */
  GuardedRefRename(GuardedRefDatabase refs, RefRename inner, RefUpdate source, RefUpdate destination) {
    super(source, destination);
    this.refs = refs;
    this.inner = inner;
  }

  @Override
  protected Result doRename() throws IOException {
    String from = source.getName();
    String to = destination.getName();
    // JGit renames what it has read when the rename was made, and compares it under its lock. So it fails if that was another value.
    Map<String, String> values = refs.reader().values(List.of(from, to));
    String value = values.get(from);
    if (RefReader.isSymbolic(value) || value.equals(RefReader.ABSENT) || !values.get(to).equals(RefReader.ABSENT)) {
      return Result.NOT_ATTEMPTED;
    }
    Move gone = new Move(value, RefReader.ABSENT, from);
    Move made = new Move(RefReader.ABSENT, value, to);
    Result[] byJgit = new Result[1];
    Outcome outcome;
    try {
      outcome = refs.guard().move(refs, getRefLogIdent(), List.of(gone, made), () -> byJgit[0] = inner.rename());
    } catch (RefusedException e) {
      if (e.kind() == RefusedException.Kind.RETRY) {
        return Result.LOCK_FAILURE;
      }
      throw e;
    }
    if (outcome.shows(gone) && outcome.shows(made)) {
      return Result.RENAMED;
    }
    outcome.rethrow();
    return byJgit[0];
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
  public void setRefLogMessage(String message) {
    if (inner != null) { // the base class's constructor says what the inner one's has said
      inner.setRefLogMessage(message);
    }
  }

  @Override
  public void disableRefLog() {
    inner.disableRefLog();
  }
}
