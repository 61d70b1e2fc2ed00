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

/** A rename: one transaction that deletes a ref and creates another. Gerrit itself renames no refs. */
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
    // JGit renames the value that it read when the rename was created, and compares it under its lock. So the rename
    // fails if that value differs from this one.
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
    if (inner != null) { // the base class's constructor repeats a call of the inner one's
      inner.setRefLogMessage(message);
    }
  }

  @Override
  public void disableRefLog() {
    inner.disableRefLog();
  }
}
