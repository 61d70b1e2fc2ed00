package com.github.globalrefdb.gerrit;

import static org.eclipse.jgit.transport.ReceiveCommand.Result.LOCK_FAILURE;
import static org.eclipse.jgit.transport.ReceiveCommand.Result.NOT_ATTEMPTED;
import static org.eclipse.jgit.transport.ReceiveCommand.Result.OK;
import static org.eclipse.jgit.transport.ReceiveCommand.Result.REJECTED_OTHER_REASON;

import com.github.globalrefdb.gerrit.session.Move;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.google.common.flogger.FluentLogger;
import java.io.IOException;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.eclipse.jgit.lib.BatchRefUpdate;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.ProgressMonitor;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.revwalk.RevWalk;
import org.eclipse.jgit.transport.PushCertificate;
import org.eclipse.jgit.transport.ReceiveCommand;
import org.eclipse.jgit.util.time.ProposedTimestamp;

/** An update of many refs: one transaction. JGit's own batch does the work. */
final class GuardedBatchRefUpdate extends BatchRefUpdate {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  private final GuardedRefDatabase refs;
  private final BatchRefUpdate inner;

  GuardedBatchRefUpdate(GuardedRefDatabase refs, BatchRefUpdate inner) {
    super(refs);
    this.refs = refs;
    this.inner = inner;
  }

  @Override
  public void execute(RevWalk walk, ProgressMonitor monitor) throws IOException {
    execute(walk, monitor, null);
  }

  /** Unless an exception is thrown, each command's result is its outcome. */
  @Override
  public void execute(RevWalk walk, ProgressMonitor monitor, List<String> options) throws IOException {
    Map<ReceiveCommand, Move> moves = moves();
    if (pending().isEmpty()) {
      return;
    }
    if (moves.isEmpty()) {
      inner.execute(walk, monitor, options);
      return;
    }
    Outcome outcome;
    try {
      outcome = refs.guard().move(refs, getRefLogIdent(), List.copyOf(moves.values()), () -> inner.execute(walk, monitor, options));
    } catch (RefusedException e) {
      if (e.kind() == RefusedException.Kind.RETRY) {
        String reason = e.getMessage();
        moves.keySet().forEach(command -> command.setResult(LOCK_FAILURE, reason));
        ReceiveCommand.abort(getCommands());
        return;
      }
      throw e;
    }
    judge(moves, outcome);
  }

  private List<ReceiveCommand> pending() {
    return ReceiveCommand.filter(getCommands(), NOT_ATTEMPTED);
  }

  /**
   * The moves to announce. Commands that can't succeed get their result here, as do all other commands of an atomic
   * batch.
   */
  private Map<ReceiveCommand, Move> moves() throws IOException {
    List<ReceiveCommand> pending = pending().stream().filter(command -> RefGuard.isAnnounced(command.getRefName())).toList();
    Map<String, Ref> found = refs.reader().read(pending.stream().map(ReceiveCommand::getRefName).toList());
    Map<ReceiveCommand, Move> moves = new LinkedHashMap<>();
    Set<String> names = new HashSet<>();
    for (ReceiveCommand command : pending) {
      Ref ref = found.get(command.getRefName());
      Move move = move(command);
      if (!names.add(move.ref())) {
        command.setResult(REJECTED_OTHER_REASON, move.ref() + " is moved twice");
      } else if (ref != null && ref.isSymbolic() && !isSymbolic(command)) {
        command.setResult(REJECTED_OTHER_REASON, move.ref() + " is a symbolic ref: move " + ref.getTarget().getName());
      } else if (!move.oldValue().equals(RefReader.value(ref))) {
        command.setResult(LOCK_FAILURE);
      } else if (!move.movesNothing()) {
        moves.put(command, move);
      }
      if (command.getResult() != NOT_ATTEMPTED && isAtomic()) {
        ReceiveCommand.abort(getCommands());
        return Map.of();
      }
    }
    return moves;
  }

  private static boolean isSymbolic(ReceiveCommand command) {
    return command.getOldSymref() != null || command.getNewSymref() != null;
  }

  private static Move move(ReceiveCommand command) {
    return new Move(
        value(command.getOldSymref(), command.getOldId().name()),
        value(command.getNewSymref(), command.getNewId().name()),
        command.getRefName());
  }

  private static String value(String target, String id) {
    return target != null ? RefReader.symbolic(target) : id;
  }

  private static void judge(Map<ReceiveCommand, Move> moves, Outcome outcome) throws IOException {
    moves.forEach(
        (command, move) -> {
          if (command.getResult() != LOCK_FAILURE && outcome.shows(move)) {
            command.setResult(OK);
          }
        });
    if (moves.keySet().stream().anyMatch(command -> command.getResult() != OK)) {
      outcome.rethrow();
    }
    outcome.thrown().ifPresent(e -> logger.atWarning().withCause(e).log("refdb: refs were moved, and then this was thrown"));
  }

  // Everything else is delegated to the inner batch.

  @Override
  public List<ReceiveCommand> getCommands() {
    return inner.getCommands();
  }

  @Override
  public BatchRefUpdate addCommand(ReceiveCommand command) {
    inner.addCommand(command);
    return this;
  }

  @Override
  public BatchRefUpdate addCommand(ReceiveCommand... commands) {
    inner.addCommand(commands);
    return this;
  }

  @Override
  public BatchRefUpdate addCommand(Collection<ReceiveCommand> commands) {
    inner.addCommand(commands);
    return this;
  }

  @Override
  public boolean isAtomic() {
    return inner.isAtomic();
  }

  @Override
  public BatchRefUpdate setAtomic(boolean atomic) {
    inner.setAtomic(atomic);
    return this;
  }

  @Override
  public boolean isAllowNonFastForwards() {
    return inner.isAllowNonFastForwards();
  }

  @Override
  public BatchRefUpdate setAllowNonFastForwards(boolean allow) {
    inner.setAllowNonFastForwards(allow);
    return this;
  }

  @Override
  public PersonIdent getRefLogIdent() {
    return inner.getRefLogIdent();
  }

  @Override
  public BatchRefUpdate setRefLogIdent(PersonIdent ident) {
    inner.setRefLogIdent(ident);
    return this;
  }

  @Override
  public String getRefLogMessage() {
    return inner.getRefLogMessage();
  }

  @Override
  public boolean isRefLogIncludingResult() {
    return inner.isRefLogIncludingResult();
  }

  @Override
  public BatchRefUpdate setRefLogMessage(String message, boolean appendStatus) {
    inner.setRefLogMessage(message, appendStatus);
    return this;
  }

  @Override
  public BatchRefUpdate disableRefLog() {
    inner.disableRefLog();
    return this;
  }

  @Override
  public boolean isRefLogDisabled() {
    return inner.isRefLogDisabled();
  }

  @Override
  public BatchRefUpdate setForceRefLog(boolean force) {
    inner.setForceRefLog(force);
    return this;
  }

  @Override
  public void setPushCertificate(PushCertificate certificate) {
    inner.setPushCertificate(certificate);
  }

  @Override
  public List<String> getPushOptions() {
    return inner.getPushOptions();
  }

  @Override
  public List<ProposedTimestamp> getProposedTimestamps() {
    return inner.getProposedTimestamps();
  }

  @Override
  public BatchRefUpdate addProposedTimestamp(ProposedTimestamp timestamp) {
    inner.addProposedTimestamp(timestamp);
    return this;
  }

  @Override
  public String toString() {
    return inner.toString();
  }
}
