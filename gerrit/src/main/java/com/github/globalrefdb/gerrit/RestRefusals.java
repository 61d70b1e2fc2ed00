package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.RefusedException;
import com.google.common.base.Throwables;
import com.google.common.collect.ImmutableList;
import com.google.common.collect.ImmutableSet;
import com.google.common.flogger.FluentLogger;
import com.google.gerrit.git.LockFailureException;
import com.google.gerrit.server.ExceptionHook;
import com.google.inject.Inject;
import java.io.IOException;
import java.util.LinkedHashSet;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * Shows users of REST and the web UI the reason of a refusal: 503 and the daemon's lines, or 409 for a project that
 * exists elsewhere, and for a change that was submitted elsewhere while Gerrit was submitting it.
 */
final class RestRefusals implements ExceptionHook {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  /**
   * Gerrit's message in that case, inside an internal error. It also occurs without a guard if two users submit at the
   * same time.
   */
  private static final String NOT_SUBMITTED = "unexpectedly had status NEW after submit attempt";

  /**
   * Gerrit's message, within an internal error, about a change that is new in the repository but submitted in the index:
   * the repository of this site is behind, or its index is.
   */
  private static final Pattern STALE_SET = Pattern.compile("change (\\d+) missing from ChangeSet.*", Pattern.DOTALL);

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
            .anyMatch(e -> isNotSubmitted(e) || isStaleSet(e) || e instanceof RefusedException refused && refused.reason().equals("exists"));
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
      } else if (isStaleSet(cause)) {
        lines.add("refdb: nothing was submitted: the repository and the index of this site differ about the change: try again in a moment");
        logger.atWarning().log(
            "refdb: the repository and the index differ about change %s: if they continue to, run `refdbctl gerrit check SITE_PATH --compare`",
            numberIn(cause));
      }
    }
    return lines;
  }

  private static boolean isNotSubmitted(Throwable e) {
    return e instanceof IllegalStateException && e.getMessage() != null && e.getMessage().endsWith(NOT_SUBMITTED);
  }

  private static boolean isStaleSet(Throwable e) {
    return e instanceof IOException && e.getMessage() != null && STALE_SET.matcher(e.getMessage()).matches();
  }

  private static String numberIn(Throwable staleSet) {
    return STALE_SET.matcher(staleSet.getMessage()).replaceFirst("$1");
  }
}
