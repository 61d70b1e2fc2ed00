package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.RefusedException;
import com.google.common.base.Throwables;
import com.google.common.collect.ImmutableList;
import com.google.common.collect.ImmutableSet;
import com.google.gerrit.git.LockFailureException;
import com.google.gerrit.server.ExceptionHook;
import com.google.inject.Inject;
import java.util.LinkedHashSet;
import java.util.Optional;
import java.util.Set;

/**
 * Shows users of REST and the web UI the reason of a refusal: 503 and the daemon's lines, or 409 for a project that
 * exists elsewhere, and for a change that was submitted elsewhere while Gerrit was submitting it.
 */
final class RestRefusals implements ExceptionHook {
  /**
   * Gerrit's message in that case, inside an internal error. It also occurs without a guard if two users submit at the
   * same time.
   */
  private static final String NOT_SUBMITTED = "unexpectedly had status NEW after submit attempt";

  private final RecentRefusals recent;

  @Inject
  RestRefusals(RecentRefusals recent) {
    this.recent = recent;
  }

  @Override
  public Optional<Status> getStatus(Throwable throwable) {
    if (lines(throwable).isEmpty()) {
      return Optional.empty();
    }
    boolean conflict =
        Throwables.getCausalChain(throwable).stream()
            .anyMatch(e -> isNotSubmitted(e) || e instanceof RefusedException refused && refused.reason().equals("exists"));
    return Optional.of(conflict ? Status.create(409, "Conflict") : Status.create(503, "Service Unavailable"));
  }

  @Override
  public boolean skipRetryWithTrace(String actionType, String actionName, Throwable throwable) {
    return !lines(throwable).isEmpty();
  }

  @Override
  public Optional<String> formatCause(Throwable throwable) {
    return Throwables.getCausalChain(throwable).stream()
        .filter(RefusedException.class::isInstance)
        .map(e -> "refdb_" + ((RefusedException) e).reason())
        .findFirst();
  }

  /** Part of the interface up to Gerrit 3.11. */
  public ImmutableList<String> getUserMessages(Throwable throwable, String traceId) {
    return ImmutableList.copyOf(lines(throwable));
  }

  /** Part of the interface from Gerrit 3.12 on. */
  public ImmutableList<String> getUserMessages(Throwable throwable, ImmutableSet<String> traceIds) {
    return ImmutableList.copyOf(lines(throwable));
  }

  /** A retryable refusal has become a lock failure: its reason was recorded. */
  private Set<String> lines(Throwable throwable) {
    Set<String> lines = new LinkedHashSet<>();
    for (Throwable cause : Throwables.getCausalChain(throwable)) {
      if (cause instanceof RefusedException refused) {
        lines.addAll(refused.lines());
      } else if (cause instanceof LockFailureException failure) {
        lines.addAll(recent.ofThisThread(failure.getFailedRefs()));
      } else if (isNotSubmitted(cause)) {
        lines.add("refdb: nothing was submitted: somebody else has done that meanwhile, perhaps at another site: look at the change again");
      }
    }
    return lines;
  }

  private static boolean isNotSubmitted(Throwable e) {
    return e instanceof IllegalStateException && e.getMessage() != null && e.getMessage().endsWith(NOT_SUBMITTED);
  }
}
