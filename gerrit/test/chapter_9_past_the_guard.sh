title "9. What goes past the guard"
check "all classes that can open a repository past it are known" "$here/past_the_manager.sh" "$classes"
