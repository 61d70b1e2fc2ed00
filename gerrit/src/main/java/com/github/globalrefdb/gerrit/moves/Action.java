package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.entities.Account;
import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.entities.BranchNameKey;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import java.time.Duration;
import java.util.List;

/** Something to bring up to date. Equal actions are done once: each reads what is there when it is done. */
sealed interface Action {
  /** In the order in which actions are done. */
  enum Urgency {
    /** What may take somebody's access away. */
    ACCESS,
    CHANGE,
    /** Of everything, after a reset; also the changes of a repository that is new here. */
    COMPARISON
  }

  Urgency urgency();

  /** The index has the account's properties and external IDs; caches have its keys and tokens. */
  record AccountMoved(Account.Id id) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  /**
   * The SSH keys of any account, under any spelling of its user name: external IDs were written, or this Gerrit wrote an
   * account, indexed it, and evicted its keys only under one spelling.
   */
  record KeysMoved() implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  record GroupMoved(AccountGroup.UUID id) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  /** A group was created, renamed or deleted. */
  record GroupNamesMoved() implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  /** A project's configuration, with its permissions, or its HEAD. */
  record ConfigMoved(Project.NameKey project) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  /** A repository is new here, has gone or was replaced. */
  record RepositoryMoved(Project.NameKey project) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  /** Something in a directory of which it is not known whose repository it is. */
  record DirectoryMoved(String directory) implements Action {
    /** It may be about access, but Gerrit may take long to be asked: the thread that is for access alone does not wait for that. */
    @Override
    public Urgency urgency() {
      return Urgency.CHANGE;
    }
  }

  /** {@code action}, done a while later. Until then it is not done. */
  record Postponed(Action action, Duration after) implements Action {
    @Override
    public Urgency urgency() {
      return action.urgency();
    }
  }

  /**
   * Compares the projects that Gerrit knows with the repositories that are there: the removal of one may have been missed,
   * and one that was forgotten may be back.
   */
  record CompareProjectList() implements Action {
    /** A comparison of everything may take hours. */
    @Override
    public Urgency urgency() {
      return Urgency.CHANGE;
    }
  }

  record ChangeMoved(Project.NameKey project, Change.Id id) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.CHANGE;
    }
  }

  /** A star or a draft of a change of which only the number is known. */
  record ChangeMarked(Change.Id id) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.CHANGE;
    }
  }

  record BranchMoved(BranchNameKey branch) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.CHANGE;
    }
  }

  /**
   * Done a while after {@code action}, to find what was under way when that was done: Gerrit may have indexed the same for a move of
   * its own, of what it had read before; and a cache may have been loading what was then evicted.
   */
  record CheckAgain(Action action, Duration after) implements Action {
    /** Soon, and when even what is slow has ended. */
    static List<Action> of(Action action) {
      return List.of(new CheckAgain(action, Duration.ofSeconds(1)), new CheckAgain(action, Duration.ofSeconds(10)));
    }

    @Override
    public Urgency urgency() {
      return Urgency.CHANGE;
    }
  }

  /** Anything may have moved: evicts all caches, and then compares all indexes with the repositories. */
  record EverythingMoved() implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  /** Finds out what there is to compare. */
  record CompareEverything() implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.COMPARISON;
    }
  }

  /** External IDs were written without the accounts' own refs: all accounts are compared. */
  record ExternalIdsMoved() implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.ACCESS;
    }
  }

  record CompareAccounts(List<Account.Id> ids) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.COMPARISON;
    }
  }

  record CompareGroups(List<AccountGroup.UUID> ids) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.COMPARISON;
    }
  }

  /** The project, and which changes it has. */
  record CompareProject(Project.NameKey project) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.COMPARISON;
    }
  }

  record CompareChanges(Project.NameKey project, List<Change.Id> ids) implements Action {
    @Override
    public Urgency urgency() {
      return Urgency.COMPARISON;
    }
  }
}
