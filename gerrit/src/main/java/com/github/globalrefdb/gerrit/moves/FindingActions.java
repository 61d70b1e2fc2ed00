package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.DirectoryMoved;
import java.util.List;

/** Finds the projects of directories, and delegates all other actions. */
final class FindingActions implements ActionRunner {
  private final RepositoryDirectories directories;
  private final ActionRunner others;

  FindingActions(RepositoryDirectories directories, ActionRunner others) {
    this.directories = directories;
    this.others = others;
  }

  @Override
  public List<Action> run(Action action) throws Exception {
    if (action instanceof DirectoryMoved moved) {
      return directories.find(moved.directory());
    }
    return others.run(action);
  }
}
